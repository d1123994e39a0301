"""Delayed-sum time series (seed 002, "generating training data, XOR code"): x[t+delay+1] = x[t] + x[t+1] mod base.

With base 2 the sum is the exclusive or (Schubert and Gros 2021). Each number follows from the delay + 1 numbers before
it, so the first delay + 1 numbers, the context, determine the rest. The rest is scored. Number x is token x + 1.
"""

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fxf.base.config import key
from fxf.base.errors import UserError
from fxf.models.model import Batch
from fxf.tasks import RegisteredTask
from fxf.tasks.held_out import drawn_for, held_out, sample_held_out
from fxf.tasks.prompts import before_end, whole_numbers
from fxf.tasks.task import Evaluator, RunInfo, Task, language_model_batch

END = 0  # never a right token, because a series has no end


@dataclasses.dataclass(frozen=True)
class TimeSeriesConfig:
    """The `task` section for `time_series`."""

    name: str = key("time_series", "the task to learn")
    base: int = key(10, "the numbers are 0 … base - 1", minimum=2)
    delay: int = key(1, "steps from the later of two numbers to their sum", minimum=1)
    length: int = key(12, "length of a series, with its context of delay + 1 numbers", minimum=3)
    examples: int = key(1000, "scored series; a domain of at most this size is trained on and scored whole", minimum=1)

    def __post_init__(self) -> None:
        if self.length < self.delay + 2:
            raise UserError(
                f"task.length: expected at least task.delay + 2 = {self.delay + 2}, a context and a number that "
                f"follows from it; got {self.length}"
            )


class TimeSeries(Task):
    """Series that start from any context, which the model continues.

    In a domain of more than `task.examples` contexts, a hash of the numbers holds out a sixteenth. Series that start
    from these never count in training, and the scored sample is drawn from them.
    """

    generates, metrics = True, ("exact_match", "token_accuracy")

    def __init__(self, config: TimeSeriesConfig, run: RunInfo) -> None:
        self.config, self.batch_size, self.context = config, run.train.batch_size, config.delay + 1
        self.scored_whole = config.base ** min(self.context, 64) <= config.examples
        self.vocab_size, self.longest = config.base + 1, config.length

    def batch(self, key: jax.Array, step: jax.Array) -> Batch:
        base, length = self.config.base, self.config.length
        starts_BP = jax.random.randint(key, (self.batch_size, self.context), 0, base)
        weights_BT = jnp.broadcast_to(jnp.arange(length)[None] >= self.context, (self.batch_size, length))
        if not self.scored_whole:
            weights_BT = weights_BT & ~held_out(starts_BP)[:, None]
        return language_model_batch(series(starts_BP, base, length) + 1, weights_BT.astype(jnp.float32))

    def validate(self, evaluator: Evaluator) -> dict[str, Any]:
        starts_NP = whole_domain(self.config) if self.scored_whole else draw_sample(self.config)
        expected_NU = np.asarray(series(starts_NP, self.config.base, self.config.length))[:, self.context :] + 1
        prompts = {"tokens": starts_NP + 1, "lengths": np.full(len(starts_NP), self.context, np.int32)}
        found_NU = evaluator.top(prompts, expected_NU.shape[1])
        right_NU = found_NU == expected_NU
        exact, accuracy = float(right_NU.all(axis=1).mean()), float(right_NU.mean())
        return {"exact_match": exact, "token_accuracy": accuracy, "examples": len(starts_NP)}

    def encode(self, text: str) -> list[int]:
        numbers = whole_numbers(text, 0, self.config.base - 1, "expected numbers")
        if len(numbers) != self.context:
            raise UserError(f"expected {self.context} numbers with spaces between, got '{text}'")
        return [0, *(number + 1 for number in numbers)]

    def to_text(self, text: str, tokens: list[int]) -> str:
        return " ".join(str(token - 1) for token in before_end(tokens, END))

    def to_batch(self, text: str, answer: str) -> Batch:
        numbers = whole_numbers(answer, 0, self.config.base - 1, "answer: expected numbers")
        return {"inputs": jnp.array([[*self.encode(text), *(number + 1 for number in numbers)]])}

    def token_name(self, token: int) -> str:
        return str(token - 1) if token else "<start>"


def series(starts_BP: Any, base: int, length: int) -> jax.Array:
    """Returns the first `length` numbers of the series that begins with each context: int32 [B, length]."""

    def shift(context_BP: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        total_B1 = (context_BP[:, :1] + context_BP[:, 1:2]) % base
        return jnp.concatenate([context_BP[:, 1:], total_B1], axis=1), context_BP[:, 0]

    return jax.lax.scan(shift, jnp.asarray(starts_BP), None, length)[1].T


def whole_domain(config: TimeSeriesConfig) -> np.ndarray:
    """Returns every context, int32 [base^(delay + 1), delay + 1]."""
    return np.array(list(itertools.product(range(config.base), repeat=config.delay + 1)), np.int32)


def draw_sample(config: TimeSeriesConfig) -> np.ndarray:
    """Returns distinct held-out contexts, int32 [n, delay + 1], the same for every seed.

    There are `config.examples` of them, or fewer if a small domain holds out fewer.
    """
    rng, context = np.random.default_rng(0), config.delay + 1
    n_drawn = drawn_for(config.examples)
    if config.base ** min(context, 64) <= n_drawn:
        drawn = rng.permutation(whole_domain(config))
    else:
        drawn = rng.integers(0, config.base, (n_drawn, context), np.int32)
    return sample_held_out(drawn, config.examples)


TIME_SERIES = RegisteredTask({"task": TimeSeriesConfig}, TimeSeries, ("transformer_lm",))
