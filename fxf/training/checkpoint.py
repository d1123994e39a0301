"""Checkpoints: rotation, best-of, and loading that passes over a damaged one. The only user of Orbax."""

import hashlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from orbax.checkpoint import v1 as ocp

from fxf.config import CheckpointConfig
from fxf.errors import UserError

log = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints of one run folder.

    A save is atomic: a process killed half-way leaves the older checkpoints and an unfinished folder that no load
    reads. Each checkpoint carries a digest of its arrays, so that damage is told from data.
    """

    def __init__(self, directory: Path, config: CheckpointConfig) -> None:
        policies = ocp.training.preservation_policies
        kept: list[Any] = [policies.LatestN(config.keep)]
        if config.best:
            best = policies.BestN(
                n=1, get_metric_fn=lambda metrics: metrics[config.best], keep_checkpoints_without_metrics=False
            )
            kept.append(best)
        self._best = config.best
        self._directory = directory
        self._checkpointer = ocp.training.Checkpointer(
            directory.absolute(),
            save_decision_policy=ocp.training.save_decision_policies.FixedIntervalPolicy(1),
            preservation_policy=policies.AnyPreservationPolicy(kept),
            cleanup_tmp_directories=True,
        )

    def save(self, step: int, state: Any, metrics: dict[str, float], record: dict[str, Any]) -> None:
        """Saves `state` as of `step`; `metrics` rank it for best-of, `record` is returned by `restore`."""
        metadata = {"digest": digest(state), "record": record}
        self._checkpointer.save(step, state, metrics=metrics or None, custom_metadata=metadata, overwrite=True)

    def restore(self, shapes: Any) -> tuple[int, Any, dict[str, Any]] | None:
        """Loads the newest undamaged checkpoint: (step, state, record), or None where there is none at all.

        Args:
          shapes: the state's tree with `jax.ShapeDtypeStruct` leaves.
        """
        return self._first_whole([c.step for c in reversed(self._checkpointer.checkpoints)], shapes)

    def restore_for_use(self, shapes: Any, step: int | None = None) -> tuple[int, Any, dict[str, Any]]:
        """Loads the checkpoint of `step`; without one, the best if the run keeps a best, else the newest."""
        checkpoints = self._checkpointer.checkpoints
        steps = [c.step for c in reversed(checkpoints)]
        if step is not None:
            if step not in steps:
                raise UserError(f"{self._directory}: no checkpoint of step {step}; there are {sorted(steps) or 'none'}")
            steps = [step]
        elif self._best:
            scored = [c for c in checkpoints if c.metrics and self._best in c.metrics]
            ranked = sorted(scored, key=lambda c: (-c.metrics[self._best], -c.step))
            steps = [c.step for c in ranked] + [s for s in steps if s not in {c.step for c in scored}]
        restored = self._first_whole(steps, shapes)
        if restored is None:
            raise UserError(f"{self._directory}: no checkpoint; train the run first")
        return restored

    def close(self) -> None:
        self._checkpointer.close()

    def _first_whole(self, steps: list[int], shapes: Any) -> tuple[int, Any, dict[str, Any]] | None:
        placed = jax.tree.map(
            lambda s: jax.ShapeDtypeStruct(
                s.shape, s.dtype, sharding=jax.sharding.SingleDeviceSharding(jax.devices()[0])
            ),
            shapes,
        )
        for step in steps:
            try:
                state = self._checkpointer.load(step, placed)
                metadata: Any = self._checkpointer.metadata(step).custom_metadata
                if metadata["digest"] != digest(state):
                    raise ValueError("its digest does not match its arrays")
            except Exception as error:  # Orbax, TensorStore and JSON each raise their own kinds for damaged files.
                reason = str(error).strip().split("\n")[0][:160] or type(error).__name__
                log.warning("%s: passing over the damaged checkpoint of step %d: %s", self._directory, step, reason)
                continue
            return step, state, metadata["record"]
        if steps:
            raise UserError(f"{self._directory}: every checkpoint is damaged (steps {sorted(steps)})")
        return None


def digest(state: Any) -> str:
    """Returns a hash of every array's path, shape, type and bytes."""
    result = hashlib.blake2b(digest_size=16)
    for path, array in _arrays(state):
        result.update(f"{path} {array.shape} {array.dtype}".encode())
        result.update(np.ascontiguousarray(array).data)
    return result.hexdigest()


def _arrays(state: Any) -> Iterator[tuple[str, np.ndarray]]:
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        yield jax.tree_util.keystr(path), np.asarray(leaf)
