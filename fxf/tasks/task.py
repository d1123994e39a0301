"""The contract between a task and the experiment that runs it."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fxf.decoding.predict import Predict
from fxf.models.model import Batch


class Task(NamedTuple):
    """What to learn and how to score it.

    Attributes:
      vocab_size: tokens are 0 … vocab_size - 1.
      longest: tokens in the longest sequence that a model must read to be trained and scored.
      end_token: the token that ends a generated sequence.
      metrics: names of the shares that `evaluate` returns and a best checkpoint can be chosen by.
      batch: `batch(key, step)`, a pure function that runs on the device.
      evaluate: `evaluate(predict) -> metrics`, plain names to figures.
      encode: text of a prompt to tokens; raises UserError for what is not a prompt.
      decode: generated tokens to text.
    """

    vocab_size: int
    longest: int
    end_token: int
    metrics: tuple[str, ...]
    batch: Callable[[jax.Array, jax.Array], Batch]
    evaluate: Callable[[Predict], dict[str, float]]
    encode: Callable[[str], list[int]]
    decode: Callable[[list[int]], str]


def language_model_batch(targets_BT: jax.Array, weights_BT: jax.Array) -> Batch:
    """Returns the batch of a language model: what it reads is the targets behind token 0, without the last one."""
    inputs_BT = jnp.pad(targets_BT, ((0, 0), (1, 0)))[:, :-1]
    return {"inputs": inputs_BT, "targets": targets_BT, "weights": weights_BT}
