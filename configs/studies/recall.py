"""Study: how wide must softmax and linear attention be to recall the value of each of n keys (Arora et al. 2023)?

fxf sweep --config=studies/recall --workdir=runs/studies/recall --workers=1
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from fxf.base.config import key
from fxf.models.model import Batch
from fxf.runs.experiment import default_config
from fxf.sweeps.points import grid
from fxf.tasks import RegisteredTask
from fxf.tasks.held_out import drawn_for, held_out
from fxf.tasks.task import Evaluator, RunInfo, Task, language_model_batch

WORDS, EXAMPLES = 32, 256  # keys, and as many values; held-out sequences that are scored


@dataclasses.dataclass(frozen=True)
class RecallConfig:
    name: str = key("recall", "the task to learn")
    pairs: int = key(8, "pairs of a key and its value", minimum=1, below=WORDS + 1)


class Recall(Task):
    """Pairs of a key and a value, k1 v1 … kn vn, and then all keys in another order, each followed by its value."""

    vocab_size, metrics = 2 * WORDS + 1, ("recalled",)

    def __init__(self, config: RecallConfig, run: RunInfo) -> None:
        self.n, self.longest, self.batch_size = config.pairs, 4 * config.pairs, run.train.batch_size

    def draw(self, key: jax.Array, n_rows: int) -> jax.Array:
        """Returns sequences, `[n_rows, 4 n]`; keys are `1 … WORDS`, values `WORDS + 1 … 2 WORDS`."""
        keys, values, order = jax.random.split(key, 3)
        keys_BN = 1 + jnp.argsort(jax.random.uniform(keys, (n_rows, WORDS)), axis=1)[:, : self.n]
        pairs_BN2 = jnp.stack([keys_BN, jax.random.randint(values, keys_BN.shape, WORDS + 1, 2 * WORDS + 1)], axis=-1)
        order_BN1 = jnp.argsort(jax.random.uniform(order, keys_BN.shape), axis=1)[..., None]
        both = jnp.concatenate([pairs_BN2, jnp.take_along_axis(pairs_BN2, order_BN1, axis=1)], axis=1)
        return both.reshape(n_rows, -1)

    def batch(self, key: jax.Array, step: jax.Array) -> Batch:
        targets_BT = self.draw(key, self.batch_size)
        return self.scored(targets_BT, ~held_out(targets_BT[:, : 2 * self.n])[:, None])

    def scored(self, targets_BT: Any, counts_B1: Any) -> Batch:
        places_1T = jnp.arange(self.longest)[None]
        answers_1T = (places_1T >= 2 * self.n) & (places_1T % 2 == 1)
        return language_model_batch(targets_BT, (answers_1T & counts_B1).astype(jnp.float32))

    @functools.cached_property
    def examples(self) -> Batch:
        """The sequences that are scored, whose pairs never count in training."""
        drawn = np.asarray(jax.jit(self.draw, static_argnums=1)(jax.random.key(0), drawn_for(EXAMPLES)))
        rows = drawn[held_out(drawn[:, : 2 * self.n])][:EXAMPLES]
        return self.scored(rows, np.ones((len(rows), 1), bool))

    def validate(self, evaluator: Evaluator) -> dict[str, Any]:
        """Returns the share of values that are recalled."""
        batch = self.examples
        right = (evaluator.logits(batch).argmax(-1) == batch["targets"]) * batch["weights"]
        share = float(right.sum() / batch["weights"].sum())
        # Capped at 0.99, so that the best checkpoint is the first that reaches it.
        return {"recalled": min(share, 0.99), "accuracy": share, "examples": len(right)}


RECALL = RegisteredTask({"task": RecallConfig}, Recall, ("transformer_lm",))


def get_config() -> ConfigDict:
    config = default_config("recall:RECALL")
    config.model.n_layers, config.model.n_heads, config.model.max_len = 2, 1, 32
    config.model.d_model, config.model.d_ff = 64, 128
    config.model.positions, config.model.norm_epsilon_in = "sinusoidal", "variance"
    config.optimizer.schedule, config.optimizer.warmup_steps = "cosine", 50
    config.optimizer.b2, config.optimizer.clip_norm = 0.95, 1.0
    config.train.steps, config.train.batch_size, config.train.evaluate_every = 1000, 32, 100
    config.checkpoint.best, config.checkpoint.keep = "recalled", 1
    config.log.tensorboard = config.log.report = False
    return config


def sweep(add: Callable[..., None]) -> None:
    for width in (32, 64):
        for point in grid(
            {
                "task.pairs": [2, 8],
                "model.attention": ["softmax", "linear"],
                "optimizer.learning_rate": [3e-3, 6e-3],
                "seed": range(2),
            }
        ):
            add(**{"model.d_model": width, "model.d_ff": 2 * width}, **point)
