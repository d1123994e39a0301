"""A task as a user writes it outside the package, with generation and probing."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from fxf.config import key
from fxf.tasks import RegisteredTask
from fxf.tasks.prompts import of_each_prompt, one_group, padded_prompts, whole_numbers
from fxf.tasks.task import Task, language_model_batch

END = 0


@dataclasses.dataclass(frozen=True)
class SortingConfig:
    name: str = key("sorting", "the task to learn")
    length: int = key(3, "digits to sort", minimum=1)


class Sorting(Task):
    """Digits 1 … 9 and 0, and behind them the same digits in order and 0."""

    vocab_size, end_token, generates, metrics = 10, END, True, ("exact_match",)

    def __init__(self, config, run):
        self.n, self.batch_size, self.longest = config.length, run.train.batch_size, 2 * config.length + 2

    def batch(self, key, step):
        digits_BN = jax.random.randint(key, (self.batch_size, self.n), 1, 10)
        zero_B1 = jnp.zeros((self.batch_size, 1), jnp.int32)
        targets_BT = jnp.concatenate([digits_BN, zero_B1, jnp.sort(digits_BN), zero_B1], axis=1)
        return language_model_batch(targets_BT, jnp.ones(targets_BT.shape) * (jnp.arange(self.longest) > self.n)[None])

    def validate(self, evaluator):
        rows = np.random.default_rng(0).integers(1, 10, (50, self.n)).tolist()
        found = evaluator.top(padded_prompts([[END, *row, END] for row in rows]), self.n + 1)
        return {
            "exact_match": float(
                np.mean([row == [*sorted(x), END] for row, x in zip(found.tolist(), rows, strict=True)])
            )
        }

    def digits(self, text):
        return whole_numbers(text, 1, 9, "expected digits")

    def to_prompts(self, texts, max_tokens, max_len):
        rows = [[END, *row, END] for row in of_each_prompt(self.digits, texts)]
        return one_group(padded_prompts(rows), max_tokens, max_len)

    def to_text(self, text, tokens):
        return " ".join(map(str, tokens))

    def to_batch(self, text, answer):
        return {"inputs": jnp.array([[END, *self.digits(text), END, *self.digits(answer)]])}


SORTING = RegisteredTask({"task": SortingConfig}, Sorting, ("transformer_lm",))
