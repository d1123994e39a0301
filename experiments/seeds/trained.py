"""Runs of shipped configs, and arrays inside them."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import fxf
from fxf.base.files import read_json
from fxf.models.model import Batch
from fxf.runs import configs, probe, run


class Trained(NamedTuple):
    """A finished run: as `fxf.load` loads it, and its result."""

    run: fxf.Run
    result: dict[str, Any]

    @property
    def task(self) -> Any:
        return self.run.experiment.task

    def intermediates(self, batch: Batch) -> dict[str, np.ndarray]:
        """Returns the model's named intermediate arrays for a batch."""
        return probe.intermediates_of(self.run.experiment, self.run.params, batch)


def in_float64(laws: Callable[[], Any]) -> Callable[[], Any]:
    """Returns a function that calls `laws` with float64 enabled in JAX."""

    @functools.wraps(laws)
    def wrapped() -> Any:
        with jax.enable_x64(True):
            return laws()

    return wrapped


def trained(folder: Path, config: str, changes: dict[str, Any] | None = None) -> Trained:
    """Trains a shipped config with changed keys, or loads the run if the folder has it."""
    changes, made = {"log.tensorboard": False, "log.report": False, **(changes or {})}, fxf.read_config(config)
    made.update_from_flattened_dict(changes)
    run.train(made.to_dict(), folder, configs.origin_of(config, changes))
    return Trained(fxf.load(folder), read_json(folder / "result.json", "a result"))


def pairs_in(path: Path, pairs: tuple[tuple[str, str], ...], columns: str) -> dict[str, Any]:
    """Writes sentence pairs to a file, and returns config keys that train on all of them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{one}\t{other}\n" for one, other in pairs))
    target = columns.rpartition(",")[2]
    keys = {"name": "pairs", "path": str(path), "columns": columns, "target": target, "held_out": 0.0}
    return {f"data.{name}": value for name, value in keys.items()}


def largest(difference: Any) -> float:
    """Returns the largest magnitude in an array."""
    return float(np.abs(np.asarray(jax.device_get(difference))).max())
