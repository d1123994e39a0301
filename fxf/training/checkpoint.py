"""Checkpoints: rotation, best-of, and loading that passes over a damaged one. The only user of Orbax.

A checkpoint is a folder named by its step. It holds the arrays, as Orbax writes them; `checkpoint.json`, which says of
what run they are; and `digests.json`, the digests of all other files. It is written under another name and renamed when
it is whole, so a process killed half-way leaves the older checkpoints and an unfinished folder that nothing reads. In a
bucket nothing can be renamed: there the digests, which come last, make a checkpoint whole.
"""

import dataclasses
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
from orbax.checkpoint import v1 as ocp

from fxf.config import differences, key
from fxf.errors import UserError
from fxf.files import file_digest, files_below, is_remote, read_json, remove, why_not_written, write_atomically
from fxf.training import processes


@dataclasses.dataclass(frozen=True)
class CheckpointConfig:
    """The `checkpoint` section."""

    every: int = key(0, "steps between checkpoints; 0 saves after the last step only", minimum=0)
    keep: int = key(2, "newest checkpoints kept", minimum=1)
    best: str = key(
        "", "a metric of the evaluation: the checkpoint where it is highest, with - in front lowest, is kept and used"
    )
    average: int = key(
        1, "newest checkpoints whose mean params the run's result, evaluate.py and generate.py use", minimum=1
    )

    def __post_init__(self) -> None:
        if self.average > self.keep:
            raise UserError(f"checkpoint.average: {self.average} is more than checkpoint.keep {self.keep}")
        if self.average > 1 and self.best:
            raise UserError("checkpoint.average: a run uses the mean or the best checkpoint; leave one at its default")


log = logging.getLogger(__name__)

ARRAYS, CONTENT, DIGESTS = "state", "checkpoint.json", "digests.json"
UNFINISHED, REMOVED, DAMAGED = ".unfinished", ".removed", ".damaged"

# The step, the state, and the record saved with it.
Restored = tuple[int, Any, dict[str, Any]]


def rank(metrics: Mapping[str, float], best: str) -> float:
    """Returns the metric `best`, or minus it where `best` has a - in front; -inf where it is absent."""
    value = metrics.get(best.removeprefix("-"))
    if value is None:
        return -float("inf")
    return -value if best.startswith("-") else value


class Checkpoints:
    """The checkpoints that a training run writes into `directory`, one run at a time; any process may `load`."""

    def __init__(self, directory: Path, config: CheckpointConfig, identity: Mapping[str, Any]) -> None:
        """Opens the folder, and removes what saves that were cut short have left.

        Args:
          identity: what the run is made from; each checkpoint carries it.

        Raises:
          UserError: a file stands in the folder's place.
        """
        self._directory, self._config, self._identity = _absolute(directory), config, dict(identity)
        if processes.is_first():
            try:
                self._directory.mkdir(parents=True, exist_ok=True)
            except FileExistsError:
                raise UserError(f"{directory}: expected a folder of checkpoints, got a file") from None
            # A bucket has no empty folders.
            for path in list(self._directory.iterdir()) if self._directory.is_dir() else ():
                if UNFINISHED in path.name or path.name.endswith(REMOVED):  # Orbax adds to the name while it writes
                    remove(path)
        processes.barrier()

    def restore(self, shapes: Any) -> Restored | None:
        """Loads the newest whole checkpoint, or returns None where there is none at all.

        Damaged ones that are newer are renamed to STEP.damaged, with a warning, so that their steps can be saved again.

        Raises:
          UserError: all are damaged; or the newest whole one is of another run, or does not fit `shapes`.
        """
        damaged: dict[int, str] = {}
        steps = steps_in(self._directory)
        whole = next(_whole(self._directory, steps, damaged), 0)
        _tell_of(self._directory, steps, damaged)
        restored = _read(self._directory / str(whole), shapes, self._identity) if whole else None
        for step in damaged if processes.is_first() else ():
            aside = self._directory / f"{step}{DAMAGED}"
            remove(aside)
            (self._directory / str(step)).rename(aside)
        processes.barrier()
        return restored

    def save(self, step: int, state: Any, record: dict[str, Any]) -> None:
        """Saves `state` as of `step`, in place of an earlier save of it.

        Args:
          record: comes back with it, and its `evaluated` ranks it for best-of.
        """
        final = self._directory / str(step)
        folder = final if is_remote(final) else final.with_name(f"{step}{UNFINISHED}")
        ocp.save(folder, state, checkpointable_name=ARRAYS, overwrite=True)
        if not processes.is_first():
            return
        content = {"step": step, "identity": self._identity, "arrays": _arrays(state), "record": record}
        write_atomically(folder / CONTENT, json.dumps(content))
        write_atomically(folder / DIGESTS, json.dumps(_digests(folder)))
        if folder != final:
            if final.exists():
                final.rename(final.with_name(f"{step}{REMOVED}"))
            folder.rename(final)
            remove(final.with_name(f"{step}{REMOVED}"))
        self._rotate()

    def _rotate(self) -> None:
        """Removes the checkpoints that are neither among the newest nor the best."""
        steps = steps_in(self._directory)
        kept = set(steps[-self._config.keep :])
        if self._config.best and (ranked := _by_rank(self._directory, steps, self._config.best)):
            kept.add(ranked[0])
        for step in sorted({*steps} - kept):
            folder = self._directory / str(step)
            if is_remote(folder):
                (folder / DIGESTS).unlink(missing_ok=True)  # first, so that what is left is no checkpoint
            else:
                folder = folder.rename(folder.with_name(f"{step}{REMOVED}"))
            remove(folder)


def load(
    directory: Path, shapes: Any, identity: Mapping[str, Any] | None = None, *, step: int | None = None, best: str = ""
) -> Restored | None:
    """Loads a checkpoint: of `step`, else the one that ranks highest by `best`, else the newest.

    A damaged one is passed over with a warning, for the next in that order.

    Args:
      shapes: the state's tree with `jax.ShapeDtypeStruct` leaves, which may have shardings; else one device holds it.
      identity: of the run that it must be of; of any if None.

    Returns:
      Its step, state and record, or None where there is none at all.

    Raises:
      UserError: no checkpoint of `step`, or all are damaged, or it is of another run, or does not fit `shapes`.
    """
    directory = _absolute(directory)
    steps = steps_in(directory)
    if step is not None:
        if step not in steps:
            raise UserError(f"{directory}: no checkpoint of step {step}; there are {steps or 'none'}")
        if what := _damage(directory / str(step)):
            raise UserError(f"{directory}: the checkpoint of step {step} is damaged: {what}")
        return _read(directory / str(step), shapes, identity)
    damaged: dict[int, str] = {}
    if best:
        steps = _by_rank(directory, steps, best)[::-1]
    whole = next(_whole(directory, steps, damaged), None)
    _tell_of(directory, steps, damaged)
    return None if whole is None else _read(directory / str(whole), shapes, identity)


def load_newest(directory: Path, shapes: Any, n: int, identity: Mapping[str, Any] | None = None) -> Iterator[Restored]:
    """Loads the n newest undamaged checkpoints, or as many as there are, the newest first. Raises as `load` does."""
    directory = _absolute(directory)
    damaged: dict[int, str] = {}
    steps = steps_in(directory)
    for _, step in zip(range(n), _whole(directory, steps, damaged), strict=False):
        yield _read(directory / str(step), shapes, identity)
    _tell_of(directory, steps, damaged)


def steps_in(directory: Path) -> list[int]:
    """Returns the steps of the checkpoints in a folder, which need not be there; an unfinished save is none."""
    if not directory.is_dir():
        return []
    return sorted(int(path.name) for path in directory.iterdir() if path.name.isdecimal() and _is_plain(path.name))


@contextmanager
def kept(directory: Path) -> Iterator[None]:
    """Turns an error of writing, whatever it was, into a UserError that says what there is to go on from."""
    try:
        yield
    except Exception as error:
        if not (why := why_not_written(error)):
            raise
        steps = steps_in(directory)
        what = f"checkpoints of steps {', '.join(map(str, steps))} are kept" if steps else "there is no checkpoint yet"
        raise UserError(f"{directory.parent}: {why}; {what}; with that mended, the same command goes on") from error


def _is_plain(name: str) -> bool:
    return name == str(int(name))


def _absolute(directory: Path) -> Path:
    return directory if is_remote(directory) else directory.absolute()


def _whole(directory: Path, steps: Sequence[int], damaged: dict[int, str]) -> Iterator[int]:
    """Yields those of the steps, the last first, whose checkpoint is whole; adds the others to `damaged`."""
    for step in reversed(steps):
        if what := _damage(directory / str(step)):
            damaged[step] = what
        else:
            yield step


def _tell_of(directory: Path, steps: Sequence[int], damaged: Mapping[int, str]) -> None:
    """Warns of each damaged checkpoint, or raises a UserError if there is no other."""
    if damaged and len(damaged) == len(steps):
        listed = ", ".join(map(str, sorted(steps)))
        raise UserError(f"{directory}: every checkpoint is damaged (steps {listed}); move them away to train anew")
    for step, what in damaged.items():
        log.warning("warning: %s: passing over the damaged checkpoint of step %d: %s", directory, step, what)


def _by_rank(directory: Path, steps: Sequence[int], best: str) -> list[int]:
    """Returns the steps, the best first and of equal ones the newest; one whose record cannot be read comes last."""

    def ranked(step: int) -> tuple[float, int]:
        try:
            evaluated = read_json(directory / str(step) / CONTENT, "a checkpoint")["record"]["evaluated"]
            return rank(evaluated, best), step
        except (OSError, UserError, KeyError, TypeError, AttributeError):
            return -float("inf"), -1

    return sorted(steps, key=ranked, reverse=True)


def _read(folder: Path, shapes: Any, identity: Mapping[str, Any] | None) -> Restored:
    """Reads one checkpoint, after a look at whether it is of the run, and its arrays are those of `shapes`."""
    content = read_json(folder / CONTENT, "a checkpoint")
    if identity is not None and (differing := differences(content["identity"], identity)):
        raise UserError(f"{folder}: of another run: {differing}; give that run's checkpoints a folder of their own")
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    placed = jax.tree.map(lambda s: s.update(sharding=s.sharding or device), shapes)
    saved, wanted = content["arrays"], _arrays(shapes)
    for name in sorted({*saved, *wanted}):
        if saved.get(name) != wanted.get(name):
            what = f"{name} is {saved.get(name, 'absent')} there, {wanted.get(name, 'absent')} here"
            raise UserError(f"{folder}: does not fit this model and optimizer: {what}")
    return content["step"], ocp.load(folder, placed, checkpointable_name=ARRAYS), content["record"]


def _arrays(tree: Any) -> dict[str, str]:
    """Returns type and shape of each array by its path."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): f"{leaf.dtype}{list(leaf.shape)}" for path, leaf in leaves}


def _damage(folder: Path) -> str:
    """Returns what is wrong with a checkpoint's files, or nothing."""
    if not folder.is_dir():
        return "it is no folder"
    try:
        expected, found = read_json(folder / DIGESTS, "digests of files"), _digests(folder)
        differing = sorted(name for name in {*expected, *found} if expected.get(name) != found.get(name))
        if differing:
            return f"{differing[0]} differs from what was saved"
        step = read_json(folder / CONTENT, "a checkpoint")["step"]
        return "" if str(step) == folder.name else f"it was saved as that of step {step}"
    except FileNotFoundError as error:
        return f"{Path(error.filename or DIGESTS).name} is missing"
    except OSError as error:
        return f"it cannot be read: {error.strerror or error}"
    except UserError as error:
        return str(error)
    except KeyError as error:
        return f"{CONTENT} has no {error}"


def _digests(folder: Path) -> dict[str, str]:
    """Returns a digest of each file in the folder, by its path in it, but for the digests, also those half written."""
    paths = (path for path in files_below(folder) if not path.name.startswith(DIGESTS))
    return {path.relative_to(folder).as_posix(): file_digest(path) for path in paths}
