"""Random boolean maps (seed 002, "random boolean (\\pm b) mapping"): a model memorizes random vectors of ±0.9."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fxf.base.config import key
from fxf.models.model import Batch
from fxf.tasks import RegisteredTask
from fxf.tasks.task import Evaluator, RunInfo, Task

TRUE = 0.9
SOLVED = 1e-4


@dataclasses.dataclass(frozen=True)
class BooleanMapConfig:
    """The `task` section for `boolean_map`. A batch has train.batch_size sequences, and each one is a mapping."""

    name: str = key("boolean_map", "the task to learn")
    positions: int = key(5, "number of vectors in a mapping's input, and in its output", minimum=1)
    dim: int = key(2, "number of booleans in a vector", minimum=1)


class BooleanMap(Task):
    """Mappings of one input to one output. Each is drawn from the run's seed and the mapping's number."""

    metrics = ("solved",)

    def __init__(self, config: BooleanMapConfig, run: RunInfo) -> None:
        self.config, self.run = config, run
        self.vocab_size, self.longest = config.dim, config.positions

    @functools.cached_property
    def mappings(self) -> dict[str, np.ndarray]:
        """The batch of all mappings."""
        numbers = np.arange(self.run.train.batch_size, dtype=np.int32)
        drawn = np.stack([draw_mapping(self.config, self.run.seed, number) for number in numbers.tolist()])
        weights = np.ones((len(numbers), self.config.positions), np.float32)
        return {"inputs": drawn[:, 0], "targets": drawn[:, 1], "weights": weights, "row": numbers}

    def batch(self, key: jax.Array, step: jax.Array) -> Batch:
        return {name: jnp.asarray(value) for name, value in self.mappings.items()}

    def scored_data(self) -> dict[str, Any]:
        of_task = {"task.positions": self.config.positions, "task.dim": self.config.dim}
        return {**of_task, "train.batch_size": self.run.train.batch_size}

    def validate(self, evaluator: Evaluator) -> dict[str, Any]:
        errors_B = np.square(evaluator.logits(self.mappings) - self.mappings["targets"]).sum(axis=(1, 2))
        return {
            "squared_error": float(errors_B.max()),
            "solved": float((errors_B < SOLVED).mean()),
            "examples": len(errors_B),
        }


def draw_mapping(config: BooleanMapConfig, seed: int, number: int) -> np.ndarray:
    """Returns the input and the output of a mapping, float32 [2, positions, dim] of ±0.9."""
    booleans = np.random.default_rng((seed, number)).integers(0, 2, (2, config.positions, config.dim))
    return (TRUE * (2 * booleans - 1)).astype(np.float32)


BOOLEAN_MAP = RegisteredTask({"task": BooleanMapConfig}, BooleanMap, ("primer.bilayer:BILAYER",))
