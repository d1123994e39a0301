"""Random boolean maps (seed 002, "random boolean (\\pm b) mapping"): vectors of ±0.9 to vectors of ±0.9, by heart."""

import dataclasses
import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from fxf.config import key
from fxf.errors import UserError
from fxf.models.model import Batch
from fxf.tasks.task import Scorer, Setting, Task

TRUE = 0.9
SOLVED = 1e-4


@dataclasses.dataclass(frozen=True)
class BooleanMapConfig:
    """The `task` section for `boolean_map`. Each sequence of a batch, train.batch_size of them, is a mapping."""

    name: Literal["boolean_map"] = key("boolean_map", "the task to learn")
    positions: int = key(5, "vectors of a mapping's input, and of its output", minimum=1)
    dim: int = key(2, "booleans of a vector", minimum=1)


def boolean_map(config: BooleanMapConfig, setting: Setting) -> Task:
    """Builds the task. A mapping is one input and its output, drawn from the run's seed and the mapping's number."""
    n_mappings = setting.train.batch_size

    @functools.cache
    def mappings() -> dict[str, np.ndarray]:
        drawn = [draw_mapping(config, setting.seed, number) for number in range(n_mappings)]
        return {
            "inputs": np.stack([inputs for inputs, _ in drawn]),
            "targets": np.stack([outputs for _, outputs in drawn]),
            "weights": np.ones((len(drawn), config.positions), np.float32),
            "row": np.arange(len(drawn), dtype=np.int32),
        }

    def batch(key: jax.Array, step: jax.Array) -> Batch:
        del key, step
        return {name: jnp.asarray(value) for name, value in mappings().items()}

    def shapes() -> dict[str, jax.ShapeDtypeStruct]:
        weights = (n_mappings, config.positions)
        sizes = {"inputs": (*weights, config.dim), "targets": (*weights, config.dim), "weights": weights}
        shapes = {name: jax.ShapeDtypeStruct(shape, np.float32) for name, shape in sizes.items()}
        return {**shapes, "row": jax.ShapeDtypeStruct((n_mappings,), np.int32)}

    def evaluate(scorer: Scorer) -> dict[str, Any]:
        errors_B = np.square(scorer.logits(mappings()) - mappings()["targets"]).sum(axis=(1, 2))
        return {
            "squared_error": float(errors_B.max()),
            "solved": float((errors_B < SOLVED).mean()),
            "examples": len(errors_B),
        }

    def no_prompts(*_: Any) -> Any:
        raise UserError("task.name: 'boolean_map' maps vectors and answers no prompts; evaluate the run instead")

    return Task(
        vocab_size=config.dim,
        longest=config.positions,
        end_token=0,
        metrics=("solved",),
        validate=evaluate,
        test=evaluate,
        respond=no_prompts,
        read=no_prompts,
        name=str,
        batch=batch,
        generates=False,
        largest_batch=shapes,
    )


def draw_mapping(config: BooleanMapConfig, seed: int, number: int) -> np.ndarray:
    """Returns the input and the output of a mapping, float32 [2, positions, dim] of ±0.9."""
    booleans = np.random.default_rng((seed, number)).integers(0, 2, (2, config.positions, config.dim))
    return (TRUE * (2 * booleans - 1)).astype(np.float32)
