"""Writing files so that no reader ever sees half of one, and telling when there is no room for them."""

import errno
import os
from pathlib import Path

CANNOT_WRITE = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "a file would be larger than the limit",
    errno.EIO: "the disk failed",
}


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
