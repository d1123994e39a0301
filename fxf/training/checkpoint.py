"""Checkpoints: saving, rotation, the best one, and loading that skips damaged ones. The only user of Orbax.

A checkpoint is a folder named by its step. It holds Orbax's arrays, `checkpoint.json` with the identity of the run, and
`digests.json` with the digests of all other files. It is written under another name and renamed when it is complete. A
process that is killed while saving leaves the older checkpoints, and an unfinished folder that nothing reads. A bucket
cannot rename; there a checkpoint is complete when it has its digests, which are written last. Orbax's `Checkpointer` is
not used: it puts a step in place, and removes older ones, before there are digests that prove it whole.
"""

import dataclasses
import itertools
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax

from fxf.base.config import differences, key
from fxf.base.devices import AXES
from fxf.base.errors import UserError
from fxf.base.files import is_remote, read_json, to_json, write_atomically
from fxf.base.status import stage
from fxf.training import checkpoint_files as files
from fxf.training import processes
from fxf.training.checkpoint_files import steps_in

log = logging.getLogger(__name__)

# The step, the state, and the record that was saved with them.
Restored = tuple[int, Any, dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class CheckpointConfig:
    """The `checkpoint` section."""

    every: int = key(0, "steps between checkpoints; validations, clock and end save too; 0: only these", minimum=0)
    minutes: float = key(15.0, "minutes without a checkpoint until one is saved; 0: off", minimum=0)
    keep: int = key(2, "number of newest checkpoints to keep", minimum=1)
    best: str = key("", "validation metric whose best checkpoint is kept and used; -METRIC: lower is better")
    average: int = key(1, "checkpoints whose mean params are used: the last, and newest of checkpoint.every", minimum=1)

    def __post_init__(self) -> None:
        if self.average > 1 and not self.every:
            raise UserError("checkpoint.average: the mean is of checkpoints at multiples of checkpoint.every; set it")
        if self.average > 1 and self.best:
            raise UserError("checkpoint.average: a run uses the mean or the best checkpoint; leave one at its default")

    def used(self, directory: Path, steps: Sequence[int], last: int) -> list[int]:
        """Returns the steps whose checkpoints a run of `last` steps may use, the first choice at the end.

        With `best` these are all. A mean uses multiples of `every` and the last step, not those saved by the clock.
        """
        if self.best:  # one whose record is damaged has no rank; it comes first, so that a warning names it
            ranked = _by_rank(directory, steps, self.best)
            return sorted(ranked, key=lambda step: not files.has_its_record(directory / str(step)))
        if self.average == 1:
            return list(steps)
        return [step for step in steps if step == last or step % self.every == 0] or list(steps[-1:])

    def kept(self, directory: Path, steps: Sequence[int]) -> set[int]:
        """Returns the steps to keep: the newest, the best, and those of the mean."""
        ranked = _by_rank(directory, steps, self.best) if self.best else self.used(directory, steps, last=-1)
        return {*steps[-self.keep :], *ranked[-self.average :]}


class Checkpoints:
    """The checkpoints that one training run writes into `directory`."""

    def __init__(self, directory: Path, config: CheckpointConfig, identity: Mapping[str, Any]) -> None:
        """Opens the folder, and removes the remains of unfinished saves.

        Args:
          identity: the identity of the run; each checkpoint carries it.
        """
        self._directory, self._config, self._identity = files.absolute(directory), config, dict(identity)
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._saving: Future[None] | None = None
        if processes.is_first():
            self._directory.mkdir(parents=True, exist_ok=True)
            files.clear(self._directory)
        processes.barrier()

    def restore(self, shapes: Any) -> Restored | None:
        """Returns the newest undamaged checkpoint, or None if there are no checkpoints.

        Renames newer, damaged ones to STEP.damaged, with a warning; then their steps can be saved again.

        Raises:
          UserError: all are damaged; or the newest undamaged one is of another run, or does not fit `shapes`; or an
            array of `shapes` has no element, which Orbax cannot save.
        """
        if empty := [name for name, leaf in _by_name(shapes) if not leaf.size]:
            raise UserError(f"{empty[0]}: no checkpoint holds an array without elements; give it a shape such as [1]")
        steps = steps_in(self._directory)
        restored = next(_undamaged(self._directory, steps, shapes, self._identity), None)
        if restored and processes.is_first():
            for step in steps[steps.index(restored[0]) + 1 :]:
                files.set_aside(self._directory, step)
        processes.barrier()
        return restored

    @stage("saving")
    def save(self, step: int, state: Any, record: dict[str, Any]) -> None:
        """Starts to save `state` as the checkpoint of `step`.

        It copies the state to the host. A thread writes the files while training goes on; `wait` waits for them.

        Args:
          record: is restored with the state; its `evaluated` ranks the checkpoint.

        Raises:
          UserError: the folder was moved away; Orbax would make another in its place.
        """
        from orbax.checkpoint import v1 as ocp  # imported here: it takes as long as all else together

        self.wait()
        if not is_remote(self._directory) and not self._directory.is_dir():
            raise UserError(f"{self._directory.parent}: was moved away; the same command goes on in its new --workdir")
        final = self._directory / str(step)
        folder = final if is_remote(final) else final.with_name(f"{step}{files.UNFINISHED}")
        content = {"step": step, "identity": self._identity, "arrays": _arrays(state), "record": record}
        written = ocp.save_async(folder, state, checkpointable_name=files.ARRAYS, overwrite=True)
        self._saving = self._thread.submit(self._finish, written, folder, final, content)

    @stage("saving")
    def wait(self) -> None:
        """Waits until the checkpoint that `save` started is in place, or raises the error of writing it."""
        saving, self._saving = self._saving, None
        if saving is not None:
            saving.result()
            processes.barrier()  # any process may load it next

    def close(self) -> None:
        """Ends the thread after the checkpoint that it writes; `wait` raises its errors."""
        self._thread.shutdown()

    def _finish(self, written: Any, folder: Path, final: Path, content: dict[str, Any]) -> None:
        """Adds content and digests to the checkpoint in `folder`, moves it into place, and removes old ones.

        Every process hashes its part; the first one does the rest.
        """
        written.result()
        if processes.is_first():
            write_atomically(folder / files.CONTENT, to_json(content))
        files.write_digests(folder)
        if not processes.is_first():
            return
        if folder != final:
            folder.rename(final)
        steps = steps_in(self._directory)
        for step in sorted({*steps} - self._config.kept(self._directory, steps)):
            files.remove_step(self._directory, step)


def load(
    directory: Path,
    shapes: Any,
    identity: Mapping[str, Any] | None = None,
    n: int = 1,
    *,
    step: int | None = None,
    used: Callable[[Path, list[int]], list[int]] = lambda _, steps: steps,
    part: Callable[[Any], Any] = lambda state: state,
) -> list[Restored]:
    """Loads the checkpoint of `step`, or at most n of those that a run may use; the list may be empty.

    Without a step, damaged ones are skipped with a warning. If a run that trains there removes one, it starts over.

    Args:
      shapes: the state's tree with `jax.ShapeDtypeStruct` leaves, which have the shardings of the arrays.
      identity: of the run that the checkpoints must belong to; None for any run.
      used: returns which of the steps a run may use, the first choice at the end; by default the newest.
      part: returns the part of a state to keep, so that n states need not fit in memory.

    Raises:
      UserError: `step` has no checkpoint; or the checkpoint is damaged (without `step`: all are), is of another run, or
        does not fit `shapes`.
    """
    directory = files.absolute(directory)
    steps = steps_in(directory)
    try:
        if step is not None and step not in steps:
            raise UserError(f"{directory}: no checkpoint of step {step!r}; there are {steps or 'none'}")
        tried = used(directory, steps) if step is None else [each for each in steps if each == step]
        found = itertools.islice(_undamaged(directory, tried, shapes, identity), n)
        return [(number, part(state), record) for number, state, record in found]
    except Exception:
        if {*steps} <= {*steps_in(directory)}:
            raise
    return load(directory, shapes, identity, n, step=step, used=used, part=part)


def _undamaged(
    directory: Path, steps: Sequence[int], shapes: Any, identity: Mapping[str, Any] | None
) -> Iterator[Restored]:
    """Yields the undamaged checkpoints of the steps, the last first, and warns of damaged ones that it skips.

    Raises:
      FileNotFoundError: a checkpoint was removed meanwhile.
      UserError: all are damaged.
    """
    together = any(not leaf.sharding.is_fully_addressable for leaf in jax.tree.leaves(shapes))
    damaged, any_sound = list[str](), False
    for step in reversed(steps):
        if what := files.damage(directory / str(step), together):
            if step not in steps_in(directory):
                raise FileNotFoundError(f"{directory / str(step)}: removed")
            damaged.append(f"the damaged checkpoint of step {step}: {what}")
        any_sound = any_sound or not what
        while any_sound and damaged:  # not before: if all are damaged, one error says so
            log.warning("warning: %s: skipping %s", directory, damaged.pop(0))
        if not what:
            yield _read(directory / str(step), shapes, identity)
    if damaged and len(steps) == 1:
        mend = "move it away to resume from an earlier one, or to begin anew"
        raise UserError(f"{directory}: the checkpoint of step {steps[0]} is damaged: {what}; {mend}")
    if damaged:
        listed = ", ".join(map(str, sorted(steps)))
        raise UserError(f"{directory}: every checkpoint is damaged (steps {listed}); move them away to train anew")


def _read(folder: Path, shapes: Any, identity: Mapping[str, Any] | None) -> Restored:
    """Returns a checkpoint. Raises a UserError if it is of another run, or its arrays do not fit `shapes`."""
    from orbax.checkpoint import v1 as ocp

    content = read_json(folder / files.CONTENT, "a checkpoint")
    if identity is not None and (differing := differences(content["identity"], identity)):
        raise UserError(f"{folder}: of another run: {differing}; give that run's checkpoints a folder of their own")
    saved, wanted = content["arrays"], _arrays(shapes)
    for name in sorted({*saved, *wanted}):
        if saved.get(name) != wanted.get(name):  # Orbax would silently convert the type
            what = f"{name} is {saved.get(name, 'absent')} there, {wanted.get(name, 'absent')} here"
            raise UserError(f"{folder}: does not fit this model and optimizer: {what}")
    context, shardings = ocp.Context(), [leaf.sharding for leaf in jax.tree.leaves(shapes)]
    # Where several processes hold copies of all arrays, the first one reads and broadcasts them. Values stay; a zero
    # loses its sign.
    copies = (not each.is_fully_addressable and each.mesh.shape[AXES[0]] > 1 for each in shardings)
    context.array.loading.use_load_and_broadcast = all(copies)
    with context:
        arrays = ocp.load(folder, shapes, checkpointable_name=files.ARRAYS)
    return content["step"], arrays, content["record"]


def _arrays(tree: Any) -> dict[str, str]:
    """Returns the type and shape of each array by its path."""
    return {name: f"{leaf.dtype}{list(leaf.shape)}" for name, leaf in _by_name(tree)}


def _by_name(tree: Any) -> list[tuple[str, Any]]:
    """Returns each array and its path."""
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]


def rank(metrics: Mapping[str, float], best: str) -> float:
    """Returns the metric `best`, negated if `best` has a leading -; -inf if it is absent or not finite."""
    value = metrics.get(best.removeprefix("-"))
    if value is None or not math.isfinite(value):
        return -math.inf
    return -value if best.startswith("-") else value


def _by_rank(directory: Path, steps: Sequence[int], best: str) -> list[int]:
    """Returns the steps, the best last, older before newer if equal.

    First come steps with an unreadable record, then those without an evaluation (such as those saved by the clock),
    then those whose metric is not finite.
    """

    def ranked(step: int) -> tuple[float, bool, int]:
        try:
            evaluated = read_json(directory / str(step) / files.CONTENT, "a checkpoint")["record"]["evaluated"]
            return rank(evaluated, best), best.removeprefix("-") in evaluated, step
        except (OSError, UserError, LookupError, TypeError):
            return -math.inf, False, -1

    return sorted(steps, key=ranked)
