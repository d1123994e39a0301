"""Checkpoints: saving, rotation, the best one, and loading that skips damaged ones. The only user of Orbax.

A checkpoint is a folder named by its step. It holds Orbax's arrays, `checkpoint.json` with the identity of the run, and
`digests.json` with the digests of all other files. It is written under another name and renamed when it is complete. A
process that is killed while saving leaves the older checkpoints, and an unfinished folder that nothing reads. A bucket
cannot rename; there a checkpoint is complete when it has its digests, which are written last. The `Checkpointer` of
Orbax puts a step in its place, and removes older ones, before there are digests that prove it whole.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax

from fxf.base.config import differences, key
from fxf.base.devices import AXES
from fxf.base.errors import UserError
from fxf.base.files import is_remote, read_json, remove, to_json, write_atomically
from fxf.base.status import stage
from fxf.training import checkpoint_files as files
from fxf.training import processes
from fxf.training.checkpoint_files import steps_in

# The step, the state, and the record that was saved with them.
Restored = tuple[int, Any, dict[str, Any]]


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
        "metric of the evaluation whose best checkpoint is kept, besides the newest, and used: the highest, or the "
        "lowest with a leading -; a worse one is not saved",
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
        if self.average == 1:
            return list(steps)
        return [step for step in steps if step == last or step % self.every == 0] or list(steps[-1:])


class Checkpoints:
    """The checkpoints that one training run writes into `directory`. Any process may `load` them."""

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
          UserError: all are damaged; or the newest undamaged one is of another run, or does not fit `shapes`.
        """
        steps = steps_in(self._directory)
        restored = next(_readable(self._directory, steps, shapes, self._identity), None)
        if restored and processes.is_first():
            for step in steps[steps.index(restored[0]) + 1 :]:
                aside = self._directory / f"{step}{files.DAMAGED}"
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
        folder = final if is_remote(final) else final.with_name(f"{step}{files.UNFINISHED}")
        content = {"step": step, "identity": self._identity, "arrays": _arrays(state), "record": record}
        written = ocp.save_async(folder, state, checkpointable_name=files.ARRAYS, overwrite=True)
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
        """Completes the checkpoint in `folder` by its content and digests, puts it in its place, and removes others.

        Every process hashes its part; the first one does the rest.
        """
        written.result()
        if processes.is_first():
            write_atomically(folder / files.CONTENT, to_json(content))
        files.write_digests(folder)
        if not processes.is_first():
            return
        if folder != final:
            replaced = final.with_name(f"{final.name}{files.REPLACED}")  # from which `clear` takes it if this ends here
            if final.exists():
                final.rename(replaced)
            folder.rename(final)
            remove(replaced)
        steps = steps_in(self._directory)
        for step in sorted({*steps} - self._kept(steps)):
            files.remove_step(self._directory, step)

    def _kept(self, steps: list[int]) -> set[int]:
        """Returns those of the steps that are among the newest, the best, or of the mean."""
        config = self._config
        best = files.by_rank(self._directory, steps, config.best)[-1:] if config.best else []
        return {*steps[-config.keep :], *best, *config.averaged(steps, -1)[-config.average :]}


def load(
    directory: Path, shapes: Any, identity: Mapping[str, Any] | None = None, *, step: int | None = None, best: str = ""
) -> Restored | None:
    """Returns the first of `load_several`, or None if there are no checkpoints."""
    return next(iter(load_several(directory, shapes, identity, step=step, best=best)), None)


def load_several(
    directory: Path,
    shapes: Any,
    identity: Mapping[str, Any] | None = None,
    n: int = 1,
    *,
    step: int | None = None,
    best: str = "",
    part: Callable[[Any], Any] = lambda state: state,
    among: Callable[[list[int]], list[int]] = lambda steps: steps,
) -> list[Restored]:
    """Loads at most n checkpoints: that of `step`; else those that rank highest by `best`; else the newest first.

    Without a step, damaged ones are skipped with a warning. It reads anew when the run that trains there removes one.

    Args:
      shapes: the state's tree with `jax.ShapeDtypeStruct` leaves; one device holds an array whose leaf has no sharding.
      identity: of the run that the checkpoints must belong to; None for any run.
      part: returns what to keep of a state.
      among: returns which of the steps that have checkpoints count.

    Raises:
      UserError: `step` has no checkpoint; or the checkpoint is damaged (without `step`: all are), is of another run, or
        does not fit `shapes`.
    """
    steps, directory = steps_in(directory), files.absolute(directory)
    try:
        if step is None:
            ranked = files.by_rank(directory, steps, best) if best else among(steps)
            found = itertools.islice(_readable(directory, ranked, shapes, identity), n)
            return [(number, part(state), record) for number, state, record in found]
        if step not in steps:
            raise UserError(f"{directory}: no checkpoint of step {step}; there are {steps or 'none'}")
        if what := files.damage(directory / str(step)):
            raise UserError(f"{directory}: the checkpoint of step {step} is damaged: {what}")
        number, state, record = _read(directory / str(step), shapes, identity)
        return [(number, part(state), record)]
    except Exception:
        if {*steps} <= {*steps_in(directory)}:
            raise
    return load_several(directory, shapes, identity, n, step=step, best=best, part=part, among=among)


def _readable(
    directory: Path, steps: Sequence[int], shapes: Any, identity: Mapping[str, Any] | None
) -> Iterator[Restored]:
    """Yields the undamaged checkpoints of the steps, the last first."""
    shardings = [leaf.sharding for leaf in jax.tree.leaves(shapes)]
    together = any(sharding and not sharding.is_fully_addressable for sharding in shardings)
    for step in files.undamaged(directory, steps, together):
        yield _read(directory / str(step), shapes, identity)


def _read(folder: Path, shapes: Any, identity: Mapping[str, Any] | None) -> Restored:
    """Returns a checkpoint. Raises a UserError if it is of another run, or its arrays do not fit `shapes`."""
    from orbax.checkpoint import v1 as ocp

    content = read_json(folder / files.CONTENT, "a checkpoint")
    if identity is not None and (differing := differences(content["identity"], identity)):
        raise UserError(f"{folder}: of another run: {differing}; give that run's checkpoints a folder of their own")
    saved, wanted = content["arrays"], _arrays(shapes)
    for name in sorted({*saved, *wanted}):
        if saved.get(name) != wanted.get(name):  # Orbax would convert the type without a word
            what = f"{name} is {saved.get(name, 'absent')} there, {wanted.get(name, 'absent')} here"
            raise UserError(f"{folder}: does not fit this model and optimizer: {what}")
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    placed = jax.tree.map(lambda s: s.update(sharding=s.sharding or device), shapes)
    context = ocp.Context()
    context.array.loading.use_load_and_broadcast = _has_copies(placed)
    with context:
        arrays = ocp.load(folder, placed, checkpointable_name=files.ARRAYS)
    return content["step"], arrays, content["record"]


def _has_copies(shapes: Any) -> bool:
    """Returns whether several processes hold copies of all arrays: the first of them is read, and sent to the others.

    That keeps all numbers; a zero loses its sign.
    """
    shardings = [leaf.sharding for leaf in jax.tree.leaves(shapes)]
    return all(not each.is_fully_addressable and each.mesh.shape[AXES[0]] > 1 for each in shardings)


def _arrays(tree: Any) -> dict[str, str]:
    """Returns the type and shape of each array by its path."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): f"{leaf.dtype}{list(leaf.shape)}" for path, leaf in leaves}
