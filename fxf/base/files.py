"""Reading files and writing them atomically, on a disk or in a bucket; a failure is one line."""

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fxf.base.errors import UserError, nearest

# Errors of a disk that cannot be written, and of a file that may not be.
CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EMFILE)
MAY_NOT_WRITE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR, errno.ENOTDIR)


def read_file(path: Any, key: str = "") -> bytes:
    """Returns the content of a regular file.

    Args:
      key: the config key or flag that named the file, for messages.

    Raises:
      UserError: as `require_file`; or the file cannot be read.
    """
    if not is_remote(path):
        require_file(path, key)
    try:
        return (path if is_remote(path) else Path(path)).read_bytes()
    except OSError as error:
        raise UserError(f"{key and f'{key}: '}{path}: {error.strerror or error}") from None


def require_file(path: str | Path, key: str = "") -> int:
    """Returns the size of a regular file in bytes.

    Raises:
      UserError: the file is missing, or is a folder, or a pipe, which would block. With `key`, whose name a user typed,
        the text has the nearest name.
    """
    path, where = Path(path), f"{f'{key}: ' if key else ''}{path}"
    try:
        status = path.stat()
    except OSError as error:
        beside = {file.name for file in path.parent.iterdir()} if key and path.parent.is_dir() else set()
        raise UserError(f"{where}: {error.strerror}{nearest(path.name, beside - {path.name})}") from None
    if not path.is_file():
        raise UserError(f"{where}: expected a file, got {'a folder' if path.is_dir() else 'a pipe or a device'}")
    return status.st_size


def folder_at(place: str | Path, flag: str) -> Path:
    """Returns the folder at a local path, or at gs://… as an `etils.epath.Path`, which has the same methods.

    Raises:
      UserError: it is no path, the scheme is unknown, or gs:// needs a package; the text names the `flag`.
    """
    if not isinstance(place, str | os.PathLike):
        raise UserError(f"{flag}: expected a path, got {place!r}")
    if not re.match(r"\w[\w+.-]*:/", str(place)):
        return Path(os.path.expanduser(place))  # shells do not expand the ~ of --workdir=~/runs
    if not str(place).startswith("gs://"):
        raise UserError(f"{flag}: {place}: expected a local folder or gs://BUCKET/FOLDER")
    try:
        import gcsfs  # noqa: F401  epath imports it later
        from etils import epath
    except ImportError:
        raise UserError(f"{flag}: {place}: gcsfs is not installed: pip install gcsfs") from None
    folder = epath.Path(place)
    try:
        folder.exists()
    except Exception as error:  # network, credentials and bucket raise each library's own errors
        raise UserError(f"{flag}: {place}: cannot reach it: {type(error).__name__}: {error}") from None
    return folder


def new_folder(place: str | Path, flag: str) -> Path:
    """Returns the folder at a path, as `folder_at`, to write into. Raises a UserError too if it is a file."""
    folder = folder_at(place, flag)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{flag}: {place} is a file; expected a folder, or a new path for one")
    return folder


def is_remote(path: Path | str) -> bool:
    """Returns whether the path is in a bucket, which writes files whole and has no renaming and no locks."""
    return not isinstance(path, Path | str)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes text or bytes to `path`; even after a crash the file holds either its old content or all of the new."""
    content = content.encode() if isinstance(content, str) else content
    if is_remote(path):
        path.write_bytes(content)
        return
    # Another thread, process or machine may write the same file.
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):  # for example on a read-only disk
            temporary.unlink(missing_ok=True)  # frees space on a full disk
        raise OSError(error.errno, error.strerror, str(path)) from None


def to_json(value: Any, **options: Any) -> str:
    """Returns strict JSON, where a number that is NaN or infinite is null; `options` are those of `json.dumps`."""
    return json.dumps(json.loads(json.dumps(value), parse_constant=lambda _: None), **options)


def read_json(path: Path, what: str) -> dict[str, Any]:
    """Returns the object in a JSON file; NaN and Infinity, which are no JSON, count as null.

    Args:
      what: a noun for the expected file, for the message.

    Raises:
      FileNotFoundError, NotADirectoryError: the file is missing.
      UserError: it cannot be read, or does not hold one object.
    """
    try:
        value = json.loads(path.read_bytes(), parse_constant=lambda _: None)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except (OSError, ValueError) as error:  # a ValueError if it is not JSON or not UTF-8
        raise UserError(f"{path}: not {what}: {getattr(error, 'strerror', '') or error}") from None
    if not isinstance(value, dict):
        raise UserError(f"{path}: not {what}: expected an object of keys")
    return value


def digest(content: bytes) -> str:
    """Returns a hash of the content, 32 hexadecimal digits."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def file_digest(path: Path) -> str:
    """Returns the `digest` of a file's content, which need not fit in memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def files_below(folder: Path) -> Iterator[Path]:
    """Yields the files in a folder and its subfolders, in order."""
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            yield from files_below(path)
        else:
            yield path


def remove(path: Path) -> None:
    """Removes a file, or a folder with its content, if it exists."""
    if is_remote(path):
        path.rmtree(missing_ok=True)  # type: ignore[attr-defined]
    elif path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def why_not_written(error: BaseException) -> str:
    """Returns why something could not be written, if that is what the error says, else "".

    It searches the error's text, because TensorStore, which writes checkpoints, raises a ValueError for any failure. Of
    a UserError only reasons of the disk count; otherwise its own text says more.
    """
    reasons = CANNOT_WRITE if isinstance(error, UserError) else CANNOT_WRITE + MAY_NOT_WRITE
    why = next((text for text in map(os.strerror, reasons) if text in str(error)), "")
    at = (error.filename2 or error.filename) if isinstance(error, OSError) else ""
    return f"{at}: {why}" if why and at else why
