"""Reading files that may be anything, writing files so that no reader ever sees half of one, and full disks."""

import errno
import os
import stat
from pathlib import Path

from fxf.errors import UserError, nearest

CANNOT_WRITE = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "a file would be larger than the limit",
    errno.EIO: "the disk failed",
}
# What a path may name besides a regular file; to open a pipe waits for a writer, and a device may have no end.
_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}


def read_file(path: str | Path, key: str = "", most: int | None = None) -> bytes:
    """Returns what a regular file holds.

    Args:
      key: the config key or flag that named the file, for messages.
      most: bytes that it may have; without it, half of this machine's memory, for a text is decoded beside its bytes.

    Raises:
      UserError: as `require_file`; or the file is too large or cannot be read.
    """
    size = require_file(path, key)
    limit = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2 if most is None else most
    if size > limit:
        raise _wrong(path, key, f"expected at most {limit} bytes, got {size}")
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise _wrong(path, key, f"{error.strerror}") from None
    except MemoryError:
        raise _wrong(path, key, f"its {size} bytes are more than the memory holds") from None


def require_file(path: str | Path, key: str = "") -> int:
    """Returns the size of a regular file in bytes.

    Raises:
      UserError: there is none, with the nearest name beside it; or it is a folder, a pipe, a socket or a device.
    """
    path = Path(path)
    try:
        found = path.stat()
    except OSError as error:
        raise _wrong(path, key, f"{error.strerror}{nearest(path.name, _beside(path))}") from None
    except ValueError:
        raise _wrong(path, key, "a path has no null byte") from None
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "a device")
        raise _wrong(path, key, f"expected a file, got {kind}")
    return found.st_size


def _wrong(path: str | Path, key: str, what: str) -> UserError:
    return UserError(f"{key}: {path}: {what}" if key else f"{path}: {what}")


def _beside(path: Path) -> list[str]:
    try:
        return [file.name for file in path.parent.iterdir()]
    except OSError:
        return []


def write_atomically(path: Path, text: str) -> None:
    """Writes `text` to `path`: the file holds either what it held before or all of it, also after a crash."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        temporary.unlink(missing_ok=True)  # on a full disk its room is wanted
        raise
    temporary.replace(path)


def why_not_written(error: BaseException) -> str:
    """Returns what is wrong with the disk if that is what the error says, or nothing.

    The text is read, for TensorStore, which writes the checkpoints, raises a ValueError whatever went wrong.
    """
    return next((f"{what} ({os.strerror(n)})" for n, what in CANNOT_WRITE.items() if os.strerror(n) in str(error)), "")
