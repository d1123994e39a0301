"""The files of a checkpoint: which folders are checkpoints, and whether their files are those that were saved."""

from pathlib import Path

from fxf.errors import UserError
from fxf.files import file_digest, files_below, is_remote, read_json

ARRAYS, CONTENT, DIGESTS = "state", "checkpoint.json", "digests.json"
UNFINISHED, REMOVED, DAMAGED = ".unfinished", ".removed", ".damaged"


def steps_in(directory: Path) -> list[int]:
    """Returns the steps of the finished checkpoints in a folder, which need not exist."""
    if not directory.is_dir():
        return []
    return sorted(int(path.name) for path in directory.iterdir() if path.name.isdecimal() and _is_plain(path.name))


def damage(folder: Path) -> str:
    """Returns the damage to a checkpoint's files in words, or nothing."""
    if not folder.is_dir():
        return "it is not a folder"
    try:
        expected, found = read_json(folder / DIGESTS, "digests of files"), digests(folder)
        differing = sorted(name for name in {*expected, *found} if expected.get(name) != found.get(name))
        if differing:
            return f"{differing[0]} differs from the saved file"
        step = read_json(folder / CONTENT, "a checkpoint")["step"]
        return "" if str(step) == folder.name else f"it was saved as step {step}"
    except FileNotFoundError as error:
        return f"{Path(error.filename or DIGESTS).name} is missing"
    except OSError as error:
        return f"it cannot be read: {error.strerror or error}"
    except UserError as error:
        return str(error)
    except KeyError as error:
        return f"{CONTENT} has no {error}"


def digests(folder: Path) -> dict[str, str]:
    """Returns the digest of each file in the folder by its relative path, without DIGESTS and its temporary file."""
    paths = (path for path in files_below(folder) if not path.name.startswith(DIGESTS))
    return {path.relative_to(folder).as_posix(): file_digest(path) for path in paths}


def absolute(directory: Path) -> Path:
    return directory if is_remote(directory) else directory.absolute()


def _is_plain(name: str) -> bool:
    return name == str(int(name))
