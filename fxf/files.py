"""Files that a run reads and writes: whole or not at all, on a disk or in a bucket, or one line that says why not."""

import errno
import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fxf.errors import UserError, nearest

CANNOT_WRITE = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "a file would be larger than the limit",
    errno.EIO: "the disk failed",
}
MAY_NOT_WRITE = {
    errno.EACCES: "it may not be written",
    errno.EROFS: "it cannot be written",
    errno.EISDIR: "a folder stands where a file belongs",
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
    if is_remote(path):
        return _remote_bytes(path, key)
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


def _remote_bytes(path: Any, key: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _wrong(path, key, str(error.strerror or error)) from None


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


def folder_at(place: str | Path, flag: str) -> Path:
    """Returns the folder at a path, or in a bucket at gs://…: an `etils.epath.Path`, which has the same methods.

    Raises:
      UserError: the scheme is another one, what gs:// needs is not installed, or the system refuses the path, as one
        that is too long; names the `flag`.
    """
    scheme = re.match(r"(\w[\w+.-]*):/", str(place))
    if not scheme:
        try:
            Path(place).exists()
        except OSError as error:
            raise UserError(f"{flag}: {place}: {error.strerror}") from None
        return Path(place)
    if scheme[1] != "gs" or not str(place).startswith("gs://"):
        raise UserError(f"{flag}: {place}: expected a local folder or gs://BUCKET/FOLDER")
    try:
        import gcsfs  # noqa: F401  for epath, which imports it when it is needed
        from etils import epath
    except ImportError:
        raise UserError(f"{flag}: {place}: gs:// needs more packages: pip install -e '.[gcs]'") from None
    folder = epath.Path(place)
    try:
        folder.exists()
    except Exception as error:  # of the network, of credentials, or of the bucket: each library has its own
        raise UserError(f"{flag}: {place}: cannot reach it: {type(error).__name__}: {error}") from None
    return folder


def is_remote(path: Path | str) -> bool:
    """Tells whether the path is in a bucket, where a file is written whole and nothing can be renamed or locked."""
    return not isinstance(path, Path | str)


def write_atomically(path: Path, text: str) -> None:
    """Writes `text` to `path`: the file holds either what it held before or all of it, also after a crash."""
    if is_remote(path):
        path.write_text(text)
        return
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


def read_json(path: Path, what: str) -> dict[str, Any]:
    """Returns the object that a JSON file holds.

    Args:
      what: the file should be, for the message.

    Raises:
      FileNotFoundError: there is none.
      UserError: it cannot be read, is no regular file, or holds anything but one object with each key once.
    """
    try:
        content = path.read_bytes() if is_remote(path) or not path.exists() else read_file(path)
        value = json.loads(content.decode("utf-8"), object_pairs_hook=_once)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UserError(f"{path}: not {what}: {error.strerror or error}") from None
    except RecursionError:
        raise UserError(f"{path}: not {what}: nested too deeply") from None
    except ValueError as error:  # also of UTF-8
        raise UserError(f"{path}: not {what}: {error}") from None
    if not isinstance(value, dict):
        raise UserError(f"{path}: not {what}: expected an object of keys")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key '{next(n for n in names if names.count(n) > 1)}' stands there twice")
    return found


def digest(content: bytes) -> str:
    """Returns a hash of the content, 32 hexadecimal digits."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def file_digest(path: Path) -> str:
    """Returns the `digest` of a file's content, which need not fit in memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def files_below(folder: Path) -> Iterator[Path]:
    """Yields the files in a folder and in those in it, in order."""
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            yield from files_below(path)
        else:
            yield path


def remove(path: Path) -> None:
    """Removes a file, or a folder with all that is in it, if it is there."""
    if is_remote(path):
        path.rmtree(missing_ok=True)  # type: ignore[attr-defined]
    elif path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def why_not_written(error: BaseException) -> str:
    """Returns why something could not be written if that is what the error says, or nothing.

    The text is read, for TensorStore, which writes the checkpoints, raises a ValueError whatever went wrong. A
    UserError that says more than that of a full disk says it better.
    """
    reasons = CANNOT_WRITE if isinstance(error, UserError) else CANNOT_WRITE | MAY_NOT_WRITE
    why = next((f"{what} ({os.strerror(n)})" for n, what in reasons.items() if os.strerror(n) in str(error)), "")
    return f"{error.filename}: {why}" if why and isinstance(error, OSError) and error.filename else why
