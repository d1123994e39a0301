"""A task: copy a sequence of digits."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from fxf.base.config import key
from fxf.base.errors import UserError
from fxf.runs.experiment import default_config
from fxf.tasks import RegisteredTask
from fxf.tasks.prompts import of_each_prompt, one_group, padded_prompts
from fxf.tasks.task import Task, language_model_batch

END, MARK, NAMES = 10, 11, "0123456789.:"  # . stands behind the copy, : between the sequence and its copy


@dataclasses.dataclass(frozen=True)
class CopyConfig:
    name: str = "copy"
    length: int = key(5, "digits to copy", minimum=1)


class Copy(Task):
    vocab_size, end_token, generates, metrics = 12, END, True, ("exact_match",)

    def __init__(self, config, run):
        self.n, self.batch_size, self.longest = config.length, run.train.batch_size, 2 * config.length + 2

    def batch(self, key, step):
        digits_BN = jax.random.randint(key, (self.batch_size, self.n), 0, 10)
        ends_B1 = jnp.full((self.batch_size, 1), END)
        targets_BT = jnp.concatenate([digits_BN, ends_B1 + 1, digits_BN, ends_B1], axis=1)
        return language_model_batch(targets_BT, jnp.ones(targets_BT.shape) * (jnp.arange(self.longest) > self.n)[None])

    def validate(self, evaluator):
        digits = np.random.default_rng(0).integers(0, 10, (20, self.n))
        copies = evaluator.top(padded_prompts([[0, *row, MARK] for row in digits]), self.n + 1)
        return {"exact_match": float((copies[:, : self.n] == digits).all(1).mean()), "examples": len(digits)}

    def encode(self, text):
        if not set(text) <= set(NAMES[:10]) or len(text) > self.n:
            raise UserError(f"expected at most {self.n} digits, got '{text}'")
        return [NAMES.index(digit) for digit in text]

    def to_prompts(self, texts, max_tokens, max_len):
        rows = of_each_prompt(self.encode, texts)
        return one_group(padded_prompts([[0, *row, MARK] for row in rows]), max_tokens, max_len)

    def to_text(self, text, tokens):
        return "".join(map(self.token_name, tokens))

    def to_batch(self, text, answer):
        return {"inputs": jnp.array([[0, *self.encode(text), MARK, *map(NAMES.index, answer)]])}

    def token_name(self, token):
        return NAMES[token]


COPY = RegisteredTask({"task": CopyConfig}, Copy, ("transformer_lm",))


def get_config():
    return default_config("task:COPY")
