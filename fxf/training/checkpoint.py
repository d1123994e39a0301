"""Checkpoints: rotation, best-of, and loading that passes over a damaged one. The only user of Orbax.

A save is atomic: a process killed half-way leaves the older checkpoints and an unfinished folder that nothing reads.
Once committed, a checkpoint's folder gets the digests of its files, and is compared with them before it is read.
"""

import hashlib
import json
import logging
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
from orbax.checkpoint import v1 as ocp

from fxf import processes
from fxf.config import CheckpointConfig
from fxf.errors import UserError
from fxf.files import write_atomically

log = logging.getLogger(__name__)

DIGESTS = "digests.json"

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

    def __init__(self, directory: Path, config: CheckpointConfig) -> None:
        """Opens the folder. Damaged checkpoints are renamed to STEP.damaged, with a warning.

        Raises:
          UserError: there are checkpoints, and all of them are damaged.
        """
        self._directory = directory.absolute()
        damaged = _damaged(self._directory)
        processes.wait()  # for the others to have looked
        for step in damaged if processes.first() else []:
            aside = self._directory / f"{step}.damaged"
            shutil.rmtree(aside, ignore_errors=True)
            (self._directory / str(step)).rename(aside)
        for step in steps_in(self._directory)[-1:] if processes.first() else []:
            if not (self._directory / str(step) / DIGESTS).exists():
                _write_digests(self._directory / str(step))
        processes.wait()
        policies = ocp.training.preservation_policies
        kept: list[Any] = [policies.LatestN(config.keep)]
        if config.best:
            best = policies.BestN(
                n=1, get_metric_fn=lambda metrics: rank(metrics, config.best), keep_checkpoints_without_metrics=False
            )
            kept.append(best)
        self._checkpointer = ocp.training.Checkpointer(
            self._directory,
            save_decision_policy=ocp.training.save_decision_policies.FixedIntervalPolicy(1),
            preservation_policy=policies.AnyPreservationPolicy(kept),
            cleanup_tmp_directories=True,
        )

    def save(self, step: int, state: Any, metrics: dict[str, float], record: dict[str, Any]) -> None:
        """Saves `state` as of `step`; `metrics` rank it for best-of, `record` comes back with it."""
        metadata = {"arrays": _arrays(state), "record": record}
        self._checkpointer.save(step, state, metrics=metrics or None, custom_metadata=metadata)
        if processes.first():
            _write_digests(self._directory / str(step))

    def close(self) -> None:
        self._checkpointer.close()


def load(directory: Path, shapes: Any, *, step: int | None = None, best: str = "") -> Restored | None:
    """Loads a checkpoint: of `step`, else the one that ranks highest by `best`, else the newest.

    A damaged one is passed over with a warning, for the next in that order.

    Args:
      shapes: the state's tree with `jax.ShapeDtypeStruct` leaves, which may have shardings; else one device holds it.

    Returns:
      Its step, state and record, or None where there is none at all.

    Raises:
      UserError: no checkpoint of `step`, or all are damaged, or it does not fit `shapes`.
    """
    directory = directory.absolute()
    steps = steps_in(directory)
    if step is not None and step not in steps:
        raise UserError(f"{directory}: no checkpoint of step {step}; there are {steps or 'none'}")
    damaged = _damaged(directory)
    whole = [s for s in reversed(steps) if s not in damaged and step in (None, s)]
    if step is not None and not whole:
        raise UserError(f"{directory}: the checkpoint of step {step} is damaged")
    if best:
        ranks = {s: rank(_metadata(directory / str(s))["record"]["evaluated"], best) for s in whole}
        whole.sort(key=lambda s: ranks[s], reverse=True)
    return _read(directory / str(whole[0]), shapes) if whole else None


def load_newest(directory: Path, shapes: Any, n: int) -> Iterator[Restored]:
    """Loads the n newest undamaged checkpoints, or as many as there are, the newest first. Raises as `load` does."""
    directory = directory.absolute()
    damaged = _damaged(directory)
    for step in [s for s in reversed(steps_in(directory)) if s not in damaged][:n]:
        yield _read(directory / str(step), shapes)


def _read(folder: Path, shapes: Any) -> Restored:
    """Reads one checkpoint, after a look at whether its arrays are those of `shapes`."""
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    placed = jax.tree.map(lambda s: s.update(sharding=s.sharding or device), shapes)
    saved, wanted = _metadata(folder)["arrays"], _arrays(shapes)
    for name in sorted({*saved, *wanted}):
        if saved.get(name) != wanted.get(name):
            what = f"{name} is {saved.get(name, 'absent')} there, {wanted.get(name, 'absent')} here"
            raise UserError(f"{folder}: does not fit this model and optimizer: {what}")
    return int(folder.name), ocp.load(folder, placed), _metadata(folder)["record"]


def _metadata(folder: Path) -> dict[str, Any]:
    return ocp.metadata(folder).custom_metadata


def _arrays(tree: Any) -> dict[str, str]:
    """Returns type and shape of each array by its path."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): f"{leaf.dtype}{list(leaf.shape)}" for path, leaf in leaves}


def steps_in(directory: Path) -> list[int]:
    """Returns the steps of the checkpoints in a folder, which need not be there; an unfinished save is none."""
    if not directory.is_dir():
        return []
    return sorted(int(path.name) for path in directory.iterdir() if path.name.isdecimal())


def _damaged(directory: Path) -> list[int]:
    """Returns the steps whose files differ from their digests, warning of each; raises a UserError if all do."""
    damaged = {}
    for step in steps_in(directory):
        if what := _difference(directory / str(step), step == steps_in(directory)[-1]):
            damaged[step] = what
    if damaged and len(damaged) == len(steps_in(directory)):
        raise UserError(f"{directory}: every checkpoint is damaged (steps {', '.join(map(str, damaged))})")
    for step, what in damaged.items():
        log.warning("warning: %s: passing over the damaged checkpoint of step %d: %s", directory, step, what)
    return list(damaged)


def _difference(folder: Path, newest: bool) -> str:
    """Returns what differs between a checkpoint's files and their digests, or nothing.

    Without digests, the newest was committed by a process killed before it wrote them, and is whole as far as can be
    told; an older one is what a process left that was killed while it removed it.
    """
    if not (folder / DIGESTS).exists():
        return "" if newest else "it is removed in part"
    try:
        expected = json.loads((folder / DIGESTS).read_text(encoding="utf-8"))
    except ValueError:
        return f"{DIGESTS} cannot be read"
    found = _digests(folder)
    differing = sorted(name for name in {*expected, *found} if expected.get(name) != found.get(name))
    return f"{differing[0]} differs from what was saved" if differing else ""


def _write_digests(folder: Path) -> None:
    write_atomically(folder / DIGESTS, json.dumps(_digests(folder)))


def _digests(folder: Path) -> dict[str, str]:
    """Returns a hash of each file in the folder, by its path in it, but for the digests, also those half written."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(DIGESTS))
    return {
        path.relative_to(folder).as_posix(): hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
        for path in paths
    }
