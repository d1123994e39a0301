"""The files of a checkpoint: which folders are checkpoints, and whether their files are those that were saved."""

import errno
import logging
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import jax

from fxf.errors import UserError
from fxf.files import file_digest, files_below, is_remote, read_json, remove, to_json, why_not_written, write_atomically
from fxf.training import processes

ARRAYS, CONTENT, DIGESTS = "state", "checkpoint.json", "digests.json"
UNFINISHED, REMOVED, REPLACED, DAMAGED = ".unfinished", ".removed", ".replaced", ".damaged"
WAIT_SECONDS = 600  # for the part of another process


log = logging.getLogger(__name__)

T = TypeVar("T")


def require_no_pattern(workdir: Path) -> None:
    """Raises a UserError if checkpoints cannot be saved below a folder with such a path."""
    if found := [letter for letter in "*?[" if letter in str(absolute(workdir))]:
        what = f"checkpoints cannot be saved in a folder whose path has '{found[0]}', which Orbax reads as a pattern"
        raise UserError(f"{workdir}: {what}; choose another --workdir")


def steps_in(directory: Path) -> list[int]:
    """Returns the steps of the finished checkpoints in a folder, which need not exist."""
    if not directory.is_dir():
        return []
    return sorted(int(path.name) for path in directory.iterdir() if path.name.isdecimal() and _is_plain(path.name))


def clear(directory: Path) -> None:
    """Removes what saves and removals that were cut short have left; a checkpoint that was being replaced stays."""
    for path in list(directory.iterdir()) if directory.is_dir() else ():  # a bucket has no empty folders
        if path.name.endswith(REPLACED) and not (place := path.with_suffix("")).exists():
            path.rename(place)
        elif UNFINISHED in path.name or path.name.endswith((REMOVED, REPLACED)):  # Orbax adds to an unfinished name
            remove(path)


def remove_step(directory: Path, step: int) -> None:
    """Removes a checkpoint, of which a removal that is cut short leaves nothing that counts."""
    folder = directory / str(step)
    if is_remote(folder):
        (folder / DIGESTS).unlink(missing_ok=True)  # first: without digests the rest is no checkpoint
    else:
        folder = folder.rename(folder.with_name(f"{step}{REMOVED}"))
    remove(folder)


def while_it_trains(directory: Path, read: Callable[[list[int]], T]) -> T:
    """Returns `read(steps)` of the steps in a folder; it reads anew when the run that trains there removed one."""
    while True:
        steps = steps_in(directory)
        try:
            return read(steps)
        except Exception:
            if {*steps} <= {*steps_in(directory)}:
                raise


def why_gone(error: BaseException, directory: Path) -> str:
    """Returns the reason if the error says that a part of the folder was removed, else nothing."""
    gone = os.strerror(errno.ENOENT) in str(error) and str(absolute(directory)) in str(error)
    return f"a part of {directory} was removed while the run trained" if gone else ""


@contextmanager
def kept(directory: Path) -> Iterator[None]:
    """Turns any error of writing into a UserError that names the checkpoints from which the run can resume."""
    try:
        yield
    except Exception as error:
        if not (why := why_not_written(error) or why_gone(error, directory)):
            raise
        steps = steps_in(directory)
        what = f"checkpoints of steps {', '.join(map(str, steps))} are kept" if steps else "there is no checkpoint yet"
        raise UserError(f"{directory.parent}: {why}; {what}; once that is mended, the same command resumes") from error


def undamaged(directory: Path, steps: Sequence[int], damaged: dict[int, str], together: bool = False) -> Iterator[int]:
    """Yields the steps with undamaged checkpoints, the last first; adds the others to `damaged`.

    Args:
      together: whether all processes call it; then each one looks at its part of the files.

    Raises:
      FileNotFoundError: a checkpoint was removed meanwhile.
    """
    for step in reversed(steps):
        part = (jax.process_index(), jax.process_count()) if together else (0, 1)
        what = damage(directory / str(step), *part)
        if processes.any_of(bool(what)) if together else what:
            what = what or "another process found damage"
            if step not in steps_in(directory):
                raise FileNotFoundError(f"{directory / str(step)}: removed")
            damaged[step] = what
        else:
            yield step


def warn_of_damage(directory: Path, steps: Sequence[int], damaged: Mapping[int, str]) -> None:
    """Warns of each damaged checkpoint, or raises a UserError if all are damaged."""
    if damaged and len(damaged) == len(steps):
        listed = ", ".join(map(str, sorted(steps)))
        raise UserError(f"{directory}: every checkpoint is damaged (steps {listed}); move them away to train anew")
    for step, what in damaged.items():
        log.warning("warning: %s: skipping the damaged checkpoint of step %d: %s", directory, step, what)


def damage(folder: Path, process: int = 0, count: int = 1) -> str:
    """Returns the damage to the files of a checkpoint that one of `count` processes hashes in words, or nothing."""
    if not folder.is_dir():
        return "it is not a folder"
    try:
        every, found = read_json(folder / DIGESTS, "digests of files"), digests(folder, process, count)
        expected = {name: value for name, value in every.items() if _hashed_by(name, count) == process}
        differing = sorted(name for name in {*expected, *found} if expected.get(name) != found.get(name))
        if differing:
            return f"{differing[0]} differs from the saved file"
        content = read_json(folder / CONTENT, "a checkpoint")
        for name in ("identity", "arrays", "record"):
            if not isinstance(content[name], dict):
                return f"{CONTENT}: {name}: expected an object"
        step = content["step"]
        of_record = content["record"].get("step", step)
        wrong = [x for x in (step, of_record) if type(x) is not int or str(x) != folder.name]
        return f"it was saved as step {wrong[0]!r}" if wrong else ""
    except FileNotFoundError as error:
        return f"{Path(error.filename or DIGESTS).name} is missing"
    except OSError as error:
        return f"it cannot be read: {error.strerror or error}"
    except UserError as error:
        return str(error)
    except KeyError as error:
        return f"{CONTENT} has no {error}"


def write_digests(folder: Path) -> None:
    """Completes a folder by the digests of its files: each process hashes what it wrote, the first one joins them.

    Raises:
      TimeoutError: another process does not come with its part.
    """
    process, count = jax.process_index(), jax.process_count()
    if process:
        _wait_for(folder)
        write_atomically(folder / f"{DIGESTS}.{process}", to_json(digests(folder, process, count)))
        return
    found, parts = digests(folder, process, count), [folder / f"{DIGESTS}.{other}" for other in range(1, count)]
    for part in parts:
        _wait_for(part)
        found |= read_json(part, "digests of files")
    write_atomically(folder / DIGESTS, to_json(found))
    for part in parts:
        part.unlink()


def _wait_for(path: Path) -> None:
    limit = time.monotonic() + WAIT_SECONDS
    while not path.exists():
        if time.monotonic() > limit:
            raise TimeoutError(f"{path}: expected within {WAIT_SECONDS} s")
        time.sleep(0.02)


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
    """Returns the steps, the best first, newer before older if equal.

    Those whose figure has no value follow, then those without an evaluation, whose steps may be those of a clock; at
    the end come steps with an unreadable record.
    """

    def ranked(step: int) -> tuple[float, bool, int]:
        try:
            evaluated = read_json(directory / str(step) / CONTENT, "a checkpoint")["record"]["evaluated"]
            return rank(evaluated, best), best.removeprefix("-") in evaluated, step
        except (OSError, UserError, KeyError, TypeError, AttributeError):
            return -math.inf, False, -1

    return sorted(steps, key=ranked, reverse=True)


def absolute(directory: Path) -> Path:
    return directory if is_remote(directory) else directory.absolute()


def _is_plain(name: str) -> bool:
    return name == str(int(name))
