"""The files of a checkpoint: which folders are checkpoints, and whether their files are those that were saved."""

import logging
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import jax

from fxf.base.errors import UserError
from fxf.base.files import (
    file_digest,
    files_below,
    is_remote,
    read_json,
    remove,
    to_json,
    why_not_written,
    write_atomically,
)
from fxf.training import processes

ARRAYS, CONTENT, DIGESTS = "state", "checkpoint.json", "digests.json"
UNFINISHED, REPLACED, DAMAGED = ".unfinished", ".replaced", ".damaged"
WAIT_SECONDS = 600  # for the part of another process


log = logging.getLogger(__name__)


def require_no_pattern(workdir: Path) -> None:
    """Raises a UserError if checkpoints cannot be saved below a folder with such a path."""
    if found := [letter for letter in "*?[" if letter in str(absolute(workdir))]:
        what = f"checkpoints cannot be saved in a folder whose path has '{found[0]}', which Orbax reads as a pattern"
        raise UserError(f"{workdir}: {what}; choose another --workdir")


def steps_in(directory: Path) -> list[int]:
    """Returns the steps of the finished checkpoints in a folder, which need not exist."""
    names = [path.name for path in directory.iterdir()] if directory.is_dir() else []
    return sorted(int(name) for name in names if name.isdecimal() and name == str(int(name)))


def clear(directory: Path) -> None:
    """Removes what saves and removals that were cut short have left; a checkpoint that was being replaced stays."""
    for path in list(directory.iterdir()) if directory.is_dir() else ():  # a bucket has no empty folders
        if path.name.endswith(REPLACED) and not (place := path.with_suffix("")).exists():
            path.rename(place)
        elif UNFINISHED in path.name or path.name.endswith(REPLACED):  # Orbax adds to an unfinished name
            remove(path)


def remove_step(directory: Path, step: int) -> None:
    """Removes a checkpoint, of which a removal that is cut short leaves nothing that counts."""
    folder = directory / str(step)
    if is_remote(folder):
        (folder / DIGESTS).unlink(missing_ok=True)  # first: without digests the rest is no checkpoint
    else:
        folder = folder.rename(folder.with_name(f"{step}{UNFINISHED}"))
    remove(folder)


@contextmanager
def kept(directory: Path) -> Iterator[None]:
    """Turns an error of writing into a UserError that names the checkpoints from which the run can resume."""
    try:
        yield
    except Exception as error:
        if not (why := why_not_written(error)):
            raise
        steps = steps_in(directory)
        what = f"checkpoints of steps {', '.join(map(str, steps))} are kept" if steps else "there is no checkpoint yet"
        raise UserError(f"{directory.parent}: {why}; {what}; once that is mended, the same command resumes") from error


def undamaged(directory: Path, steps: Sequence[int], together: bool = False) -> Iterator[int]:
    """Yields the steps with undamaged checkpoints, the last first, and warns of the others.

    Args:
      together: whether all processes call it; then each one looks at its part of the files.

    Raises:
      FileNotFoundError: a checkpoint was removed meanwhile.
      UserError: all are damaged.
    """
    warnings: list[str] = []  # they wait for a sound checkpoint: where there is none, one line says all
    sound = False
    for step in reversed(steps):
        what = damage(directory / str(step), together)
        is_damaged = processes.any_of(bool(what)) if together else bool(what)
        if is_damaged:
            if step not in steps_in(directory):
                raise FileNotFoundError(f"{directory / str(step)}: removed")
            what = what or "another process found damage"
            warnings.append(f"warning: {directory}: skipping the damaged checkpoint of step {step}: {what}")
        sound = sound or not is_damaged
        while sound and warnings:
            log.warning(warnings.pop(0))
        if not is_damaged:
            yield step
    if steps and not sound:
        listed = ", ".join(map(str, sorted(steps)))
        raise UserError(f"{directory}: every checkpoint is damaged (steps {listed}); move them away to train anew")


def damage(folder: Path, together: bool = False) -> str:
    """Returns the damage to the files of a checkpoint in words, or nothing.

    Args:
      together: whether all processes call it; then each one hashes what it would have written.
    """
    process, count = (jax.process_index(), jax.process_count()) if together else (0, 1)
    try:
        every, found = read_json(folder / DIGESTS, "digests of files"), digests(folder, process, count)
        saved = {name: value for name, value in every.items() if _hashed_by(name, count) == process}
        if differing := sorted(name for name in {*saved, *found} if saved.get(name) != found.get(name)):
            return f"{differing[0]} differs from the saved file"
        step = read_json(folder / CONTENT, "a checkpoint")["step"]
        return "" if str(step) == folder.name else f"it was saved as step {step}"
    except (OSError, UserError) as error:
        return str(error)


def write_digests(folder: Path) -> None:
    """Completes a folder by the digests of its files: each process hashes what it wrote, the first one joins them.

    Raises:
      TimeoutError: another process does not come with its part.
    """
    process, count = jax.process_index(), jax.process_count()
    found, parts = digests(folder, process, count), [folder / f"{DIGESTS}.{other}" for other in range(1, count)]
    if process:
        write_atomically(parts[process - 1], to_json(found))
        return
    for part in parts:
        limit = time.monotonic() + WAIT_SECONDS
        while not part.exists():
            if time.monotonic() > limit:
                raise TimeoutError(f"{part}: expected within {WAIT_SECONDS} s")
            time.sleep(0.02)
        found |= read_json(part, "digests of files")
    write_atomically(folder / DIGESTS, to_json(found))
    for part in parts:
        part.unlink()


def digests(folder: Path, process: int = 0, count: int = 1) -> dict[str, str]:
    """Returns the digest of each file that one of `count` processes hashes, by its relative path, without DIGESTS."""
    names = [path.relative_to(folder).as_posix() for path in files_below(folder) if not path.name.startswith(DIGESTS)]
    return {name: file_digest(folder / name) for name in names if _hashed_by(name, count) == process}


def _hashed_by(name: str, count: int) -> int:
    """Returns which of `count` processes hashes a file: the one that wrote its folder, else the first."""
    written = re.search(r"(?:^|/)ocdbt\.process_(\d+)/", name)  # Orbax's name of such a folder
    return int(written[1]) % count if written else 0


def rank(metrics: Mapping[str, float], best: str) -> float:
    """Returns the metric `best`, negated if `best` has a leading -; -inf if it is absent or not finite."""
    value = metrics.get(best.removeprefix("-"))
    if value is None or not math.isfinite(value):
        return -math.inf
    return -value if best.startswith("-") else value


def by_rank(directory: Path, steps: Sequence[int], best: str) -> list[int]:
    """Returns the steps, the best last, older before newer if equal.

    Steps whose figure has no value come before these, and before them those without an evaluation, whose steps may be
    those of a clock; first come steps with an unreadable record.
    """

    def ranked(step: int) -> tuple[float, bool, int]:
        try:
            evaluated = read_json(directory / str(step) / CONTENT, "a checkpoint")["record"]["evaluated"]
            return rank(evaluated, best), best.removeprefix("-") in evaluated, step
        except (OSError, UserError, LookupError, TypeError):
            return -math.inf, False, -1

    return sorted(steps, key=ranked)


def absolute(directory: Path) -> Path:
    return directory if is_remote(directory) else directory.absolute()
