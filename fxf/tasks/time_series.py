"""Delayed-sum time series (seed 002, "generating training data, XOR code"): x[t+delay+1] = x[t] + x[t+1] mod base.

With base 2 the sum is the exclusive or (Schubert and Gros 2021). Each number follows from the delay + 1 before it,
so the first delay + 1, the context, decide the rest; what follows them is scored. Number x is token x + 1.
"""

import dataclasses
import itertools
import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from fxf.config import key
from fxf.errors import UserError
from fxf.models.model import Batch
from fxf.tasks.held_out import drawn_for, held_out, power_within, sample_bytes, sample_held_out
from fxf.tasks.task import Answer, Scorer, Setting, Task, is_number, language_model_batch, to_answers

END = 0  # never right: a series has no end
LARGEST_DOMAIN = 2**32  # of which a period is searched, in a tenth of a second


@dataclasses.dataclass(frozen=True)
class TimeSeriesConfig:
    """The `task` section for `time_series`."""

    name: Literal["time_series"] = key("time_series", "the task to learn")
    base: int = key(10, "the numbers are 0 … base - 1", minimum=2)
    delay: int = key(1, "steps from the later of two numbers to their sum", minimum=1)
    length: int = key(12, "numbers of a series, the context of delay + 1 included", minimum=3)
    examples: int = key(1000, "series scored; a domain of at most so many is trained on and scored whole", minimum=1)

    def __post_init__(self) -> None:
        if self.length < self.delay + 2:
            raise UserError(
                f"task.length: expected at least task.delay + 2 = {self.delay + 2}, a context and a number that "
                f"follows from it; got {self.length}"
            )


def time_series(config: TimeSeriesConfig, setting: Setting) -> Task:
    """Builds the task.

    A series starts from any context. Of a domain of more than `task.examples` contexts a sixteenth, chosen by a hash
    of the numbers, never starts a series that counts in training, and the scored sample is drawn from it.
    """
    base, context = config.base, config.delay + 1
    scored_whole = power_within(config.examples, base, context)

    def batch(key: jax.Array, step: jax.Array) -> Batch:
        del step
        starts_BC = jax.random.randint(key, (setting.train.batch_size, context), 0, base)
        weights_BT = jnp.broadcast_to(jnp.arange(config.length)[None] >= context, (len(starts_BC), config.length))
        if not scored_whole:
            weights_BT = weights_BT & ~held_out(starts_BC)[:, None]
        return language_model_batch(series(starts_BC, base, config.length) + 1, weights_BT.astype(jnp.float32))

    def evaluate(scorer: Scorer) -> dict[str, float]:
        starts_NC = whole_domain(config) if scored_whole else draw_sample(config)
        expected_NT = np.asarray(series(starts_NC, base, config.length))
        right_NT = continued(scorer, starts_NC, config.length - context)[0][:, 0] - 1 == expected_NT[:, context:]
        return {
            "exact_match": float(right_NT.all(axis=1).mean()),
            "token_accuracy": float(right_NT.mean()),
            "examples": len(starts_NC),
        }

    def continued(scorer: Scorer, starts_NC: np.ndarray, max_tokens: int) -> tuple[np.ndarray, np.ndarray | None]:
        lengths_N = np.full(len(starts_NC), context, np.int32)
        return scorer.predict({"tokens": starts_NC + 1, "lengths": lengths_N}, max_tokens)

    def encode(text: str, where: str) -> list[int]:
        words = text.split()
        if len(words) != context or not all(is_number(word, 0, base - 1) for word in words):
            raise UserError(f"{where}: expected {context} numbers 0 … {base - 1} with spaces between, got '{text}'")
        return [int(word) for word in words]

    def respond(scorer: Scorer, texts: list[str], max_tokens: int, max_len: int) -> list[list[Answer]]:
        starts_NC = np.array([encode(text, f"prompt {number}") for number, text in enumerate(texts, 1)], np.int32)
        if context + max_tokens > max_len:
            raise UserError(f"max_tokens: {max_tokens} behind {context} numbers; model.max_len is {max_len}")
        tokens, scores = continued(scorer, starts_NC, max_tokens or max_len - context)
        return to_answers(tokens, scores, END, lambda tokens: " ".join(str(token - 1) for token in tokens))

    def read(prompt: str, answer: str) -> Batch:
        for word in answer.split():
            if not is_number(word, 0, base - 1):
                raise UserError(f"answer: expected numbers 0 … {base - 1} with spaces between, got '{word}'")
        numbers = [*encode(prompt, "prompt"), *map(int, answer.split())]
        return {"inputs": jnp.array([[0, *(number + 1 for number in numbers)]])}

    def figures() -> dict[str, Any]:
        return {"period": period(config.delay, base)} if power_within(LARGEST_DOMAIN, base, context) else {}

    return Task(
        vocab_size=base + 1,
        longest=config.length,
        end_token=END,
        metrics=("exact_match", "token_accuracy"),
        validate=evaluate,
        test=evaluate,
        respond=respond,
        read=read,
        name=lambda token: str(token - 1) if token else "<start>",
        batch=batch,
        figures=figures,
        sample_bytes=4 * context * base**context if scored_whole else sample_bytes(config.examples, context),
    )


def series(starts_BC: Any, base: int, length: int) -> jax.Array:
    """Returns the `length` numbers from each context on, the context of delay + 1 numbers first: int32 [B, length]."""

    def shift(context_BC: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        total_B1 = (context_BC[:, :1] + context_BC[:, 1:2]) % base
        return jnp.concatenate([context_BC[:, 1:], total_B1], axis=1), context_BC[:, 0]

    return jax.lax.scan(shift, jnp.asarray(starts_BC), None, length)[1].T


def period(delay: int, base: int) -> int:
    """Returns after how many steps the series that starts with ones alone comes back to its start.

    The step from one context to the next has an inverse, so every series is a cycle, of at most base^(delay + 1)
    contexts. Of a cycle of length n the search takes about √n large steps (Shanks's baby-step giant-step).
    """
    context = delay + 1
    start = np.ones(context, np.int64)
    n_small = math.isqrt(base**context) + 1
    numbers = [1] * (n_small + delay)
    for t in range(n_small - 1):
        numbers[t + context] = (numbers[t] + numbers[t + 1]) % base
    nearby = {tuple(numbers[i : i + context]): i for i in range(n_small)}  # of equal contexts, the last
    shift = np.eye(context, k=1, dtype=np.int64)
    shift[-1, :2] = 1
    large = _power(shift, n_small, base)
    reached = 0
    while True:
        start, reached = large @ start % base, reached + n_small
        if tuple(start.tolist()) in nearby:
            return reached - nearby[tuple(start.tolist())]


def _power(matrix: np.ndarray, exponent: int, base: int) -> np.ndarray:
    """Returns matrix^exponent modulo base, by squaring."""
    if exponent == 0:
        return np.eye(len(matrix), dtype=np.int64)
    half = _power(matrix, exponent // 2, base)
    return half @ half % base @ (matrix if exponent % 2 else np.eye(len(matrix), dtype=np.int64)) % base


def whole_domain(config: TimeSeriesConfig) -> np.ndarray:
    """Returns every context, int32 [base^(delay + 1), delay + 1]."""
    return np.array(list(itertools.product(range(config.base), repeat=config.delay + 1)), np.int32)


def draw_sample(config: TimeSeriesConfig) -> np.ndarray:
    """Returns distinct contexts that are held out, int32 [n, delay + 1], the same for every seed.

    There are `config.examples` of them, or as many as a small domain holds out.
    """
    rng, context = np.random.default_rng(0), config.delay + 1
    n_drawn = drawn_for(config.examples)
    if power_within(n_drawn, config.base, context):
        drawn = rng.permutation(whole_domain(config))
    else:
        drawn = rng.integers(0, config.base, (n_drawn, context), np.int32)
    return sample_held_out(drawn, config.examples)
