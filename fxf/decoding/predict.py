"""Generation for any number of prompts: batches of one shape, compiled once."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import numpy as np

from fxf.config import DecodeConfig
from fxf.decoding.beam import beam_search
from fxf.decoding.generate import Prompts, generate, prefill
from fxf.models.model import Model
from fxf.weights import Params, shapes

LARGEST_BATCH = 1000  # hypotheses
LARGEST_CACHE = 2**28  # bytes


def make_predictor(
    model: Model,
    end_token: int,
    *,
    decode: DecodeConfig = DecodeConfig(),
    seed: int = 0,
    compiling: Callable[[], AbstractContextManager] = nullcontext,
    spread: Callable[[Params, Prompts], tuple[Params, Prompts]] = lambda params, prompts: (params, prompts),
    out_shardings: Any = None,
) -> Callable[[Params, Prompts, int], tuple[np.ndarray, np.ndarray | None]]:
    """Returns `predict(params, prompts, max_tokens) -> (tokens, scores)` for any number N of prompts.

    Tokens are [N, W, max_tokens] with the best hypothesis first, what follows an end token filled with it; W is the
    beam's width. Scores are [N, W], or None without a beam. Programs compile once for each shape, whatever the params.

    Args:
      compiling: entered while a program compiles, to count that time apart.
      spread: says, inside the program, which devices hold what.
      out_shardings: where the outputs shall be, as `jax.jit` takes it.
    """
    compiled: dict[Any, Callable] = {}
    row_bytes: dict[Any, int] = {}

    def run(params: Params, prompts: Prompts, key: jax.Array, max_tokens: int) -> Any:
        params, prompts = spread(params, prompts)
        if decode.beam_width > 1:
            return beam_search(model, params, prompts, max_tokens=max_tokens, end_token=end_token, decode=decode)
        tokens = generate(model, params, prompts, max_tokens=max_tokens, end_token=end_token, decode=decode, key=key)
        return tokens[:, None], None

    def program(params: Params, prompts: Prompts, max_tokens: int) -> Callable:
        shape = (max_tokens, *((name, value.shape) for name, value in sorted(prompts.items())))
        if shape not in compiled:
            with compiling():
                jitted = jax.jit(run, static_argnums=3, out_shardings=out_shardings)
                compiled[shape] = jitted.lower(params, prompts, jax.random.key(0), max_tokens).compile()
        return compiled[shape]

    def predict(params: Params, prompts: Prompts, max_tokens: int) -> tuple[np.ndarray, np.ndarray | None]:
        n_prompts, width = len(prompts["tokens"]), decode.beam_width
        row_shape = (max_tokens, *((name, value.shape[1:]) for name, value in sorted(prompts.items())))
        if row_shape not in row_bytes:
            row_bytes[row_shape] = _cache_bytes(model, prompts, max_tokens, width)
        most = LARGEST_CACHE // row_bytes[row_shape]
        batch_size = min(n_prompts, max(1, LARGEST_BATCH // width), max(1, most))
        n_batches = math.ceil(n_prompts / batch_size)
        # Missing rows repeat the last one.
        rows = np.minimum(np.arange(n_batches * batch_size), n_prompts - 1).reshape(n_batches, batch_size)
        keys = jax.random.split(jax.random.key(seed), n_batches)
        outputs = []
        for batch_rows, key in zip(rows, keys, strict=True):
            batch = {name: np.asarray(value)[batch_rows] for name, value in prompts.items()}
            outputs.append(jax.device_get(program(params, batch, max_tokens)(params, batch, key)))
        tokens, scores = zip(*outputs, strict=True)
        return np.concatenate(tokens)[:n_prompts], None if scores[0] is None else np.concatenate(scores)[:n_prompts]

    return predict


def _cache_bytes(model: Model, prompts: Prompts, max_tokens: int, width: int) -> int:
    """Returns the size of one prompt's cache; allocates nothing."""
    row = {name: jax.ShapeDtypeStruct((1, *value.shape[1:]), value.dtype) for name, value in prompts.items()}
    cache, _ = jax.eval_shape(
        lambda params, batch: prefill(model, params, batch, max_tokens, width), shapes(model.spec), row
    )
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(cache))
