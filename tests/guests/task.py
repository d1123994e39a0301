"""A task: copy a sequence of digits, from rows on the host."""

import dataclasses

import grain
import jax.numpy as jnp
import numpy as np

from fxf.base.config import key
from fxf.base.errors import UserError
from fxf.runs.experiment import default_config
from fxf.tasks import RegisteredTask
from fxf.tasks.prompts import padded_prompts
from fxf.tasks.task import Task

END, MARK, NAMES = 10, 11, "0123456789.:"  # . ends the copy, : separates the sequence and its copy


@dataclasses.dataclass(frozen=True)
class CopyConfig:
    name: str = "copy"
    length: int = key(5, "digits to copy", minimum=1)


class Copy(Task):
    vocab_size, end_token, generates, metrics = 12, END, True, ("exact_match",)

    def __init__(self, config, run):
        self.n, self.longest = config.length, 2 * config.length + 2
        self.given = {"seed": run.seed, "batch_size": run.train.batch_size}

    def row(self, i):
        digits = np.random.default_rng(i).integers(0, 10, self.n)
        tokens = np.array([0, *digits, MARK, *digits, END], np.int32)
        weights = (np.arange(self.longest) > self.n).astype(np.float32)
        return {"inputs": tokens[:-1], "targets": tokens[1:], "weights": weights}

    def batches(self):
        return iter(grain.load([*map(self.row, range(100))], shuffle=True, **self.given))

    def validate(self, evaluator):
        digits = np.random.default_rng(0).integers(0, 10, (20, self.n))
        copies = evaluator.top(padded_prompts([[0, *row, MARK] for row in digits]), self.n + 1)
        return {"exact_match": float((copies[:, : self.n] == digits).all(1).mean()), "examples": len(digits)}

    def encode(self, text):
        if not set(text) <= set(NAMES[:10]) or len(text) > self.n:
            raise UserError(f"expected at most {self.n} digits, got '{text}'")
        return [0, *map(NAMES.index, text), MARK]

    def to_text(self, text, tokens):
        return "".join(map(self.token_name, tokens))

    def to_batch(self, text, answer):
        return {"inputs": jnp.array([[*self.encode(text), *map(NAMES.index, answer)]])}

    def token_name(self, token):
        return NAMES[token]


COPY = RegisteredTask({"task": CopyConfig}, Copy, ("transformer_lm",))


def get_config():
    return default_config("task:COPY")
