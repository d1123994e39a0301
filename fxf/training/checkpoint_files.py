"""The files of a checkpoint: which folders are checkpoints, and whether their files are those that were saved."""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from fxf.errors import UserError
from fxf.files import file_digest, files_below, is_remote, read_json, remove, why_not_written
from fxf.training import processes

ARRAYS, CONTENT, DIGESTS = "state", "checkpoint.json", "digests.json"
UNFINISHED, DAMAGED = ".unfinished", ".damaged"


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
    """Removes what saves and removals that were cut short have left."""
    for path in list(directory.iterdir()) if directory.is_dir() else ():  # a bucket has no empty folders
        if UNFINISHED in path.name:  # Orbax adds to an unfinished name
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
      together: whether all processes call it; then the first one looks at the files.

    Raises:
      UserError: all are damaged.
    """
    warnings: list[str] = []  # they wait for a sound checkpoint: where there is none, one line says all
    sound = False
    for step in reversed(steps):
        what = damage(directory / str(step)) if processes.is_first() or not together else ""
        is_damaged = processes.any_of(bool(what)) if together else bool(what)
        if is_damaged:
            what = what or "the first process found damage"
            warnings.append(f"warning: {directory}: skipping the damaged checkpoint of step {step}: {what}")
        sound = sound or not is_damaged
        while sound and warnings:
            log.warning(warnings.pop(0))
        if not is_damaged:
            yield step
    if steps and not sound:
        listed = ", ".join(map(str, sorted(steps)))
        raise UserError(f"{directory}: every checkpoint is damaged (steps {listed}); move them away to train anew")


def damage(folder: Path) -> str:
    """Returns the damage to the files of a checkpoint in words, or nothing."""
    try:
        saved, found = read_json(folder / DIGESTS, "digests of files"), digests(folder)
        if differing := sorted(name for name in {*saved, *found} if saved.get(name) != found.get(name)):
            return f"{differing[0]} differs from the saved file"
        step = read_json(folder / CONTENT, "a checkpoint")["step"]
        return "" if str(step) == folder.name else f"it was saved as step {step}"
    except (OSError, UserError) as error:
        return str(error)


def digests(folder: Path) -> dict[str, str]:
    """Returns the digest of each file of a checkpoint by its relative path, without DIGESTS."""
    files = [path for path in files_below(folder) if not path.name.startswith(DIGESTS)]
    return {path.relative_to(folder).as_posix(): file_digest(path) for path in files}


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
