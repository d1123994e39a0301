"""Generation for any number of prompts: batches of one shape, compiled once."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import jax
import numpy as np

from fxf.decoding.generate import generate
from fxf.decoding.sampling import Sampling
from fxf.models.model import Model
from fxf.weights import Params, shapes

LARGEST_BATCH = 1000
LARGEST_CACHE = 2**28  # bytes

# What a task scores: int32 prompts [N, P], their lengths [N] and max_tokens to tokens [N, max_tokens]; what follows an
# end token is filled with it. `make_predictor`'s function with its params given is one.
Predict = Callable[[np.ndarray, np.ndarray, int], np.ndarray]


def make_predictor(
    model: Model,
    end_token: int,
    *,
    sampling: Sampling = Sampling(),
    seed: int = 0,
    compiling: Callable[[], AbstractContextManager] = nullcontext,
) -> Callable[[Params, np.ndarray, np.ndarray, int], np.ndarray]:
    """Returns `predict(params, prompts, lengths, max_tokens)`, which continues any number of prompts.

    Programs compile once for each shape, whatever the params.

    Args:
      compiling: entered while a program compiles, to count that time apart.
    """
    compiled: dict[tuple[int, int, int], Callable] = {}

    def program(params: Params, batch_size: int, longest: int, max_tokens: int) -> Callable:
        shape = (batch_size, longest, max_tokens)
        if shape not in compiled:

            def run(params: Params, prompts: jax.Array, lengths: jax.Array, key: jax.Array) -> jax.Array:
                return generate(
                    model,
                    params,
                    prompts,
                    lengths,
                    max_tokens=max_tokens,
                    end_token=end_token,
                    sampling=sampling,
                    key=key,
                )

            with compiling():
                tokens = jax.ShapeDtypeStruct((batch_size, longest), np.int32)
                lengths = jax.ShapeDtypeStruct((batch_size,), np.int32)
                compiled[shape] = jax.jit(run).lower(params, tokens, lengths, jax.random.key(0)).compile()
        return compiled[shape]

    def predict(params: Params, prompts: np.ndarray, lengths: np.ndarray, max_tokens: int) -> np.ndarray:
        n_prompts, longest = prompts.shape
        batch_size = min(n_prompts, LARGEST_BATCH, max(1, LARGEST_CACHE // _cache_bytes(model, longest + max_tokens)))
        n_batches = math.ceil(n_prompts / batch_size)
        missing = n_batches * batch_size - n_prompts
        prompts = np.pad(prompts, ((0, missing), (0, 0))).astype(np.int32).reshape(n_batches, batch_size, longest)
        lengths = np.pad(lengths, (0, missing)).astype(np.int32).reshape(n_batches, batch_size)
        run = program(params, batch_size, longest, max_tokens)
        keys = jax.random.split(jax.random.key(seed), n_batches)
        outputs = [np.asarray(run(params, *batch)) for batch in zip(prompts, lengths, keys, strict=True)]
        return np.concatenate(outputs)[:n_prompts]

    return predict


def _cache_bytes(model: Model, length: int) -> int:
    """Returns the size of one row's cache; allocates nothing."""
    row = {"inputs": jax.ShapeDtypeStruct((1, 1), np.int32), "lengths": jax.ShapeDtypeStruct((1,), np.int32)}
    cache = jax.eval_shape(lambda params, batch: model.prefill(params, batch, length), shapes(model.spec), row)
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(cache))
