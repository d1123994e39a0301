"""Checkpoints: saving, rotation, the best one, and loading that skips damaged ones. The only user of Orbax.

A checkpoint is a folder named by its step. It holds Orbax's arrays, `checkpoint.json` with the identity of the run, and
`digests.json` with the digests of all other files. It is written under another name and renamed when it is complete. A
process that is killed while saving leaves the older checkpoints, and an unfinished folder that nothing reads. A bucket
cannot rename; there a checkpoint is complete when it has its digests, which are written last.
"""

import dataclasses
import itertools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax

from fxf.config import differences, key
from fxf.errors import UserError, text_of
from fxf.files import is_remote, read_json, remove, to_json, write_atomically
from fxf.machine.status import stage
from fxf.training import processes
from fxf.training.checkpoint_files import (
    ARRAYS,
    CONTENT,
    DAMAGED,
    REPLACED,
    UNFINISHED,
    absolute,
    by_rank,
    clear,
    remove_step,
    steps_in,
    undamaged,
    warn_of_damage,
    while_it_trains,
    write_digests,
)


@dataclasses.dataclass(frozen=True)
class CheckpointConfig:
    """The `checkpoint` section."""

    every: int = key(0, "steps between checkpoints, besides those of the other keys; 0: none by steps", minimum=0)
    minutes: float = key(
        15.0, "minutes after which a checkpoint is saved, if none was meanwhile; 0: none by the clock", minimum=0
    )
    keep: int = key(2, "number of newest checkpoints to keep", minimum=1)
    best: str = key(
        "",
        "metric of the evaluation whose best checkpoint is kept and used: the highest, or the lowest with a leading -",
    )
    average: int = key(
        1,
        "number of checkpoints whose mean params the result, `fxf evaluate` and `fxf generate` use: the last step's "
        "and the newest at multiples of checkpoint.every",
        minimum=1,
    )

    def __post_init__(self) -> None:
        if self.average > 1 and not self.every:
            raise UserError("checkpoint.average: the mean is of checkpoints at multiples of checkpoint.every; set it")
        if self.average > 1 and self.best:
            raise UserError("checkpoint.average: a run uses the mean or the best checkpoint; leave one at its default")

    def averaged(self, steps: Sequence[int], last: int) -> list[int]:
        """Returns the steps that count for the mean, of which the newest are used; the clock has no say in them."""
        return [step for step in steps if step == last or step % self.every == 0] or list(steps[-1:])


log = logging.getLogger(__name__)


class UnreadableError(UserError):
    """The arrays of a checkpoint cannot be read, though its files have their digests."""


# The step, the state, and the record that was saved with them.
Restored = tuple[int, Any, dict[str, Any]]


class Checkpoints:
    """The checkpoints that one training run writes into `directory`. Any process may `load` them."""

    def __init__(self, directory: Path, config: CheckpointConfig, identity: Mapping[str, Any]) -> None:
        """Opens the folder, and removes the remains of unfinished saves.

        Args:
          identity: the identity of the run; each checkpoint carries it.

        Raises:
          UserError: a file stands in the folder's place.
        """
        self._directory, self._config, self._identity = absolute(directory), config, dict(identity)
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._saving: Future[None] | None = None
        if processes.is_first():
            try:
                self._directory.mkdir(parents=True, exist_ok=True)
            except FileExistsError:
                raise UserError(f"{directory}: expected a folder of checkpoints, got a file") from None
            clear(self._directory)
        processes.barrier()

    def restore(self, shapes: Any) -> Restored | None:
        """Returns the newest undamaged checkpoint, or None if there are no checkpoints.

        Renames newer, damaged ones to STEP.damaged, with a warning; then their steps can be saved again.

        Raises:
          UserError: all are damaged; or the newest undamaged one is of another run, or does not fit `shapes`.
        """
        damaged: dict[int, str] = {}
        steps = steps_in(self._directory)
        restored = next(_readable(self._directory, steps, damaged, shapes, self._identity), None)
        warn_of_damage(self._directory, steps, damaged)
        for step in damaged if processes.is_first() else ():
            aside = self._directory / f"{step}{DAMAGED}"
            remove(aside)
            (self._directory / str(step)).rename(aside)
        processes.barrier()
        return restored

    @stage("saving")
    def save(self, step: int, state: Any, record: dict[str, Any]) -> None:
        """Starts to save `state` as the checkpoint of `step`, which replaces an earlier one of that step.

        It copies the state to the host. A thread writes the files while training goes on; `wait` ends with them.

        Args:
          record: is restored with the state; its `evaluated` ranks the checkpoint.
        """
        from orbax.checkpoint import v1 as ocp  # imported here, because it takes as long as the rest together

        self.wait()
        final = self._directory / str(step)
        folder = final if is_remote(final) else final.with_name(f"{step}{UNFINISHED}")
        content = {"step": step, "identity": self._identity, "arrays": _arrays(state), "record": record}
        written = ocp.save_async(folder, state, checkpointable_name=ARRAYS, overwrite=True)
        self._saving = self._thread.submit(self._finish, written, folder, final, content)

    @stage("saving")
    def wait(self) -> None:
        """Waits until the checkpoint that `save` started is in its place, and raises what kept it from that."""
        saving, self._saving = self._saving, None
        if saving is not None:
            saving.result()
            processes.barrier()  # any process may load it next

    def close(self) -> None:
        """Ends the thread, after the checkpoint that it writes; its errors are those of `wait`."""
        self._thread.shutdown()

    def _finish(self, written: Any, folder: Path, final: Path, content: dict[str, Any]) -> None:
        written.result()
        if processes.is_first():
            self._publish(folder, final, content)
        else:
            write_digests(folder)

    def _publish(self, folder: Path, final: Path, content: dict[str, Any]) -> None:
        """Completes the checkpoint in `folder` by its content and digests, and puts it in its place."""
        step = content["step"]
        write_atomically(folder / CONTENT, to_json(content))
        write_digests(folder)
        if folder != final:
            if final.exists():
                final.rename(final.with_name(f"{step}{REPLACED}"))  # from which `clear` takes it if this ends here
            folder.rename(final)
            remove(final.with_name(f"{step}{REPLACED}"))
        self._rotate()

    def _rotate(self) -> None:
        """Removes the checkpoints that are neither among the newest, nor the best, nor of the mean."""
        steps = steps_in(self._directory)
        kept = set(steps[-self._config.keep :])
        if self._config.best and (ranked := by_rank(self._directory, steps, self._config.best)):
            kept.add(ranked[0])
        if self._config.average > 1:
            kept |= {*self._config.averaged(steps, -1)[-self._config.average :]}
        for step in sorted({*steps} - kept):
            remove_step(self._directory, step)


def load(
    directory: Path, shapes: Any, identity: Mapping[str, Any] | None = None, *, step: int | None = None, best: str = ""
) -> Restored | None:
    """Loads the checkpoint of `step`; without a step the one that ranks highest by `best`; else the newest.

    Without a step, damaged ones are skipped with a warning.

    Args:
      shapes: the state's tree with `jax.ShapeDtypeStruct` leaves; one device holds an array whose leaf has no sharding.
      identity: of the run that the checkpoint must belong to; None for any run.

    Returns:
      The step, state and record, or None if there are no checkpoints.

    Raises:
      UserError: `step` has no checkpoint; or the checkpoint is damaged (without `step`: all are), is of another run, or
        does not fit `shapes`.
    """
    directory = absolute(directory)

    def read(steps: list[int]) -> Restored | None:
        damaged: dict[int, str] = {}
        if step is not None and step not in steps:
            raise UserError(f"{directory}: no checkpoint of step {step}; there are {steps or 'none'}")
        ranked = [step] if step is not None else by_rank(directory, steps, best)[::-1] if best else steps
        first = next(_readable(directory, ranked, damaged, shapes, identity), None)
        if step is not None and first is None:
            raise UserError(f"{directory}: the checkpoint of step {step} is damaged: {damaged[step]}")
        warn_of_damage(directory, steps, damaged)
        return first

    return while_it_trains(directory, read)


def load_newest(
    directory: Path,
    shapes: Any,
    n: int,
    identity: Mapping[str, Any] | None = None,
    part: Callable[[Any], Any] = lambda state: state,
    among: Callable[[list[int]], list[int]] = lambda steps: steps,
) -> list[Restored]:
    """Returns at most n undamaged checkpoints with a part of their state, the newest first. Raises as `load` does.

    Args:
      among: returns which of the steps that have checkpoints count.
    """
    directory = absolute(directory)

    def read(steps: list[int]) -> list[Restored]:
        damaged: dict[int, str] = {}
        steps = among(steps)
        readable = _readable(directory, steps, damaged, shapes, identity)
        found = [(step, part(state), record) for step, state, record in itertools.islice(readable, n)]
        warn_of_damage(directory, steps, damaged)
        return found

    return while_it_trains(directory, read)


def _readable(
    directory: Path, steps: Sequence[int], damaged: dict[int, str], shapes: Any, identity: Mapping[str, Any] | None
) -> Iterator[Restored]:
    """Yields the undamaged checkpoints of the steps, the last first; adds the others to `damaged`."""
    shardings = [leaf.sharding for leaf in jax.tree.leaves(shapes)]
    together = any(sharding and not sharding.is_fully_addressable for sharding in shardings)
    for step in undamaged(directory, steps, damaged, together):
        try:
            restored = _read(directory / str(step), shapes, identity)
        except UnreadableError as error:
            damaged[step] = str(error)
        else:
            yield restored


def _read(folder: Path, shapes: Any, identity: Mapping[str, Any] | None) -> Restored:
    """Returns a checkpoint, after checking that it is of the run and that its arrays fit `shapes`.

    Raises:
      UnreadableError: its arrays cannot be read, or are those of another step.
      UserError: it is of another run, or does not fit.
    """
    from orbax.checkpoint import v1 as ocp

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
    try:
        state = ocp.load(folder, placed, checkpointable_name=ARRAYS)
    except Exception as error:  # Orbax and TensorStore raise many types
        if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error) or not folder.exists():
            raise
        what = f"{type(error).__name__}: {text_of(error)}"
        raise UnreadableError(f"its arrays cannot be read: {what[:200]}") from error
    if hasattr(state, "step") and int(state.step) != content["step"]:
        raise UnreadableError(f"its arrays are those of step {int(state.step)}")
    return content["step"], state, content["record"]


def _arrays(tree: Any) -> dict[str, str]:
    """Returns the type and shape of each array by its path."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): f"{leaf.dtype}{list(leaf.shape)}" for path, leaf in leaves}
