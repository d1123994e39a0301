"""A task: copy a sequence of digits."""

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from fxf.config import key
from fxf.errors import UserError
from fxf.runs.experiment import default_config
from fxf.tasks import TASKS, RegisteredTask
from fxf.tasks.task import Task, language_model_batch, to_answers

END, MARK, NAMES = 10, 11, "0123456789.:"  # . stands behind the copy, : between the sequence and its copy


@dataclasses.dataclass(frozen=True)
class CopyConfig:
    name: Literal["copy"] = key("copy", "the task to learn")
    length: int = key(5, "digits to copy", minimum=1)


def copy(config, setting):
    n = config.length

    def batch(key, step):
        digits_BN = jax.random.randint(key, (setting.train.batch_size, n), 0, 10)
        ends_B1 = jnp.full((len(digits_BN), 1), END)
        targets_BT = jnp.concatenate([digits_BN, ends_B1 + 1, digits_BN, ends_B1], axis=1)
        return language_model_batch(targets_BT, jnp.broadcast_to(1.0 * (jnp.arange(2 * n + 2) > n), targets_BT.shape))

    def test(scorer):
        digits = np.random.default_rng(0).integers(0, 10, (20, n))
        copies = scorer.best(prompts(digits.tolist()), n + 1)
        return {"exact_match": float((copies[:, :n] == digits).all(1).mean()), "examples": len(digits)}

    def prompts(rows):
        tokens = np.array([[*row, MARK] + [END] * (n - len(row)) for row in rows], np.int32)
        return {"tokens": tokens, "lengths": np.array([len(row) + 1 for row in rows], np.int32)}

    def encode(text):
        if not set(text) <= set(NAMES) or len(text) > n:
            raise UserError(f"expected at most {n} digits, got '{text}'")
        return [NAMES.index(digit) for digit in text]

    def respond(scorer, texts, max_tokens, max_len):
        tokens, scores = scorer.predict(prompts([encode(text) for text in texts]), max_tokens or n)
        return to_answers(tokens, scores, END, lambda digits: "".join(NAMES[digit] for digit in digits))

    def read(prompt, answer):
        return {"inputs": jnp.array([[0, *encode(prompt), MARK, *encode(answer)]])}

    return Task(12, 2 * n + 2, END, ("exact_match",), test, test, respond, read, NAMES.__getitem__, batch)


TASKS["copy"] = RegisteredTask({"task": CopyConfig}, copy, ("transformer_lm",))


def get_config():
    return default_config("copy")
