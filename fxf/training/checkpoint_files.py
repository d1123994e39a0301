"""The files of a checkpoint: which folders are checkpoints, and whether their files are as they were saved."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax

from fxf.base import files
from fxf.base.errors import DivergedError, UserError
from fxf.training import processes

ARRAYS, CONTENT, DIGESTS = "state", "checkpoint.json", "digests.json"
UNFINISHED, DAMAGED = ".unfinished", ".damaged"
WAIT_SECONDS = 600  # for the part of another process


def require_no_pattern(workdir: Path) -> None:
    """Raises a UserError if the path has a character that Orbax reads as a pattern; it saves nothing there."""
    if found := [letter for letter in "*?[\\" if letter in str(absolute(workdir))]:
        what = f"checkpoints cannot be saved in a folder whose path has '{found[0]}', which Orbax reads otherwise"
        raise UserError(f"{workdir}: {what}; choose another --workdir")


def absolute(directory: Path) -> Path:
    return directory if files.is_remote(directory) else directory.absolute()


def steps_in(directory: Path) -> list[int]:
    """Returns the steps of the finished checkpoints in a folder, which need not exist."""
    names = [path.name for path in directory.iterdir()] if directory.is_dir() else []
    return sorted(int(name) for name in names if name.isdecimal() and name == str(int(name)))


def clear(directory: Path) -> None:
    """Removes the remains of interrupted saves and removals."""
    for path in list(directory.iterdir()) if directory.is_dir() else ():  # a bucket has no empty folders
        if UNFINISHED in path.name:  # Orbax adds to the name
            files.remove(path)


def set_aside(directory: Path, step: int) -> None:
    """Renames a damaged checkpoint; its step can be saved again."""
    aside = directory / f"{step}{DAMAGED}"
    files.remove(aside)
    (directory / str(step)).rename(aside)


def remove_step(directory: Path, step: int) -> None:
    """Removes a checkpoint; an interrupted removal leaves nothing that counts as one."""
    folder = directory / str(step)
    if files.is_remote(folder):
        (folder / DIGESTS).unlink(missing_ok=True)  # first: without digests the rest is no checkpoint
    else:
        folder = folder.rename(folder.with_name(f"{step}{UNFINISHED}"))
    files.remove(folder)


@contextmanager
def kept(directory: Path) -> Iterator[None]:
    """Turns an error of writing into a UserError; it and a DivergedError name the checkpoints that the run has."""
    try:
        yield
    except Exception as error:
        steps = steps_in(directory)
        what = f"checkpoints of steps {', '.join(map(str, steps))} are kept" if steps else "there is no checkpoint yet"
        if isinstance(error, DivergedError):
            raise DivergedError(f"{error} {what[0].upper()}{what[1:]}.") from None
        if not (why := files.why_not_written(error)):
            raise
        where = str(error) if isinstance(error, UserError) else f"{directory.parent}: {why}"  # it names its own place
        raise UserError(f"{where}; {what}; once that is mended, the same command resumes") from error


def damage(folder: Path, together: bool = False) -> str:
    """Returns what is damaged in the files of a checkpoint, or "".

    Args:
      together: whether all processes call it; then each hashes the files of its part, and all learn of any damage.
    """
    process, count = (jax.process_index(), jax.process_count()) if together else (0, 1)
    try:
        every = files.read_json(folder / DIGESTS, "digests of files")
        saved = {name: value for name, value in every.items() if _hashed_by(name, count) == process}
        if differing := saved.items() ^ digests(folder, process, count).items():
            what = f"{min(differing)[0]} differs from the saved file"
        else:
            step = files.read_json(folder / CONTENT, "a checkpoint")["step"]
            what = "" if str(step) == folder.name else f"it was saved as step {step}"
    except (OSError, UserError) as error:
        what = str(error)
    if together and processes.any_of(bool(what)):
        return what or "another process found damage"
    return what


def has_its_record(folder: Path) -> bool:
    """Returns whether the record of a checkpoint is as it was saved."""
    try:
        return files.read_json(folder / DIGESTS, "digests of files")[CONTENT] == files.file_digest(folder / CONTENT)
    except (OSError, UserError, LookupError):
        return False


def write_digests(folder: Path) -> None:
    """Writes the digests of a folder's files: each process hashes what it wrote, and the first one joins them.

    Raises:
      TimeoutError: another process did not write its part in time.
    """
    process, count = jax.process_index(), jax.process_count()
    found = digests(folder, process, count)
    if process > 0:
        files.write_atomically(folder / f"{DIGESTS}.{process}", files.to_json(found))
        return
    parts = [folder / f"{DIGESTS}.{other}" for other in range(1, count)]
    for part in parts:
        limit = time.monotonic() + WAIT_SECONDS
        while not part.exists():
            if time.monotonic() > limit:
                raise TimeoutError(f"{part}: expected within {WAIT_SECONDS} s")
            time.sleep(0.02)
        found |= files.read_json(part, "digests of files")
    files.write_atomically(folder / DIGESTS, files.to_json(found))
    for part in parts:
        part.unlink()


def digests(folder: Path, process: int = 0, count: int = 1) -> dict[str, str]:
    """Returns the digest of each file that one of `count` processes hashes, by its relative path, without DIGESTS."""
    saved = (path for path in files.files_below(folder) if not path.name.startswith(DIGESTS))
    names = [path.relative_to(folder).as_posix() for path in saved]
    return {name: files.file_digest(folder / name) for name in names if _hashed_by(name, count) == process}


def _hashed_by(name: str, count: int) -> int:
    """Returns which of `count` processes hashes a file: the one that wrote its folder, else the first."""
    written = re.search(r"(?:^|/)ocdbt\.process_(\d+)/", name)  # Orbax's name of such a folder
    return int(written[1]) % count if written else 0
