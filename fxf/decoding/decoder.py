"""Decoding of any number of prompts, by programs of few shapes that compile once each."""

import functools
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fxf.decoding.beam import beam_search
from fxf.decoding.config import DecodeConfig
from fxf.decoding.sampling import sampling
from fxf.decoding.slots import decode_in_slots
from fxf.decoding.steps import Method, Progress, Prompts, begin
from fxf.machine import memory
from fxf.machine.compiled import compiled_by_shape
from fxf.machine.memory import Part
from fxf.machine.random_keys import random_key
from fxf.machine.status import stage
from fxf.models.model import Model
from fxf.weights import Params, shapes

HYPOTHESES = 320  # decoded at a time; more if each slot has at least PROMPTS_PER_SLOT prompts
PROMPTS_PER_SLOT = 8
LARGEST_CACHE = 2**28  # bytes


class Placement(NamedTuple):
    """How devices share the work of a decoder.

    Attributes:
      gather, shard_rows: constrain, inside the program, how devices share the params and the rows of a batch.
      out_shardings: the sharding of the outputs, as in `jax.jit`.
    """

    gather: Callable[[Params], Params] = lambda params: params
    shard_rows: Callable[[Any], Any] = lambda rows: rows
    out_shardings: Any = None


def make_decoder(
    model: Model,
    end_token: int,
    *,
    config: DecodeConfig = DecodeConfig(),
    seed: int = 0,
    compiling: Callable[[], AbstractContextManager] = nullcontext,
    placement: Placement = Placement(),
    programs: dict[Any, Any] | None = None,
) -> Callable[[Params, Prompts, int], tuple[np.ndarray, np.ndarray | None]]:
    """Returns `decode(params, prompts, max_tokens) -> (tokens, scores)` for any number N of prompts.

    Tokens are [N, W, U], the best hypothesis first; W is the beam's width and U is `max_tokens`. End tokens fill the
    places after an end token. Scores are [N, W], or None without a beam. A program compiles once for each shape, and
    serves all params.

    Args:
      compiling: returns a context that is entered while a program compiles, to count that time apart.
      placement: how devices share the work; by default one device does it.
      programs: keeps what is computed once for each shape: the compiled programs, and the bytes of a prompt's cache.
    """
    row_bytes = programs = {} if programs is None else programs
    method = functools.partial(method_of, end_token, config)
    program = decoding_program(model, method, placement)
    search = compiled_by_shape(program, compiling, programs)

    def decode(params: Params, prompts: Prompts, max_tokens: int) -> tuple[np.ndarray, np.ndarray | None]:
        n_prompts, width = len(prompts["tokens"]), config.beam_width
        row_shape = (max_tokens, *((name, value.shape[1:]) for name, value in sorted(prompts.items())))
        if row_shape not in row_bytes:
            row_bytes[row_shape] = _cache_bytes(model, prompts, method(max_tokens, random_key(seed)), width)
        n_slots = _n_slots(n_prompts, width, row_bytes[row_shape])
        n_rows = n_slots if n_prompts == n_slots else n_slots * 2 * PROMPTS_PER_SLOT
        outputs = []
        with stage("decoding", n_prompts) as progress:
            for start in range(0, n_prompts, n_rows):
                # Copies of the last prompt fill up the rows; they are not decoded.
                rows = np.minimum(np.arange(start, start + n_rows), n_prompts - 1)
                some = {name: np.asarray(value)[rows] for name, value in prompts.items()}
                key = jax.random.fold_in(random_key(seed), start)
                counted = np.int32(min(n_rows, n_prompts - start))
                found = search(params, some, counted, key, max_tokens=max_tokens, n_slots=n_slots)
                outputs.append(jax.device_get(found))
                progress.advance(int(counted))
        tokens, scores = zip(*outputs, strict=True)
        return np.concatenate(tokens)[:n_prompts], None if scores[0] is None else np.concatenate(scores)[:n_prompts]

    return decode


def decoding_program(
    model: Model, method: Callable[[int, jax.Array], Method], placement: Placement = Placement()
) -> Any:
    """Returns the jitted `run(params, prompts, n_prompts, key, max_tokens=…, n_slots=…)` of a decoder."""

    def run(
        params: Params, prompts: Prompts, n_prompts: jax.Array, key: jax.Array, *, max_tokens: int, n_slots: int
    ) -> Any:
        chosen = method(max_tokens, key)
        of_slots: Any = {"n_slots": n_slots, "n_prompts": n_prompts, "shard_rows": placement.shard_rows}
        return decode_in_slots(model, placement.gather(params), prompts, chosen, **of_slots)

    return jax.jit(run, static_argnames=("max_tokens", "n_slots"), out_shardings=placement.out_shardings)


def method_of(end_token: int, config: DecodeConfig, max_tokens: int, key: jax.Array) -> Method:
    """Returns the method that the `decode` section names; `key` is that of sampling."""
    if config.beam_width > 1:
        return beam_search(max_tokens, end_token, config)
    return sampling(max_tokens, end_token, config, key)


def _n_slots(n_prompts: int, width: int, row_bytes: int) -> int:
    """Returns how many prompts are decoded at a time. Similar numbers of prompts have the same program."""
    many = 2 ** int(math.log2(max(n_prompts // PROMPTS_PER_SLOT, 1)))
    limit = LARGEST_CACHE // row_bytes
    return min(n_prompts, max(1, min(max(HYPOTHESES // width, many), limit)))


def _cache_bytes(model: Model, prompts: Prompts, method: Method, width: int) -> int:
    """Returns the size of one prompt's cache in bytes, without allocating it.

    Raises:
      UserError: the free memory cannot hold one prompt.
    """
    free, keys = memory.free_on_a_device(), ("decode.beam_width", "max_tokens") if width > 1 else ("max_tokens",)
    tokens = Part("new tokens", 4 * width * method.max_tokens, keys)
    memory.require("generation", [tokens], free)  # checked first, because no program can name too large an array
    row = {name: jax.ShapeDtypeStruct((1, *value.shape[1:]), value.dtype) for name, value in prompts.items()}
    params = shapes(model.spec, model.weights_dtype)

    def one(params: Params, prompt: Prompts) -> Progress:
        return begin(model, params, prompt, method, jnp.zeros(1, jnp.int32), method.max_tokens)

    start = jax.eval_shape(one, params, row)
    n_bytes = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(start.cache))
    parts = [tokens, Part("cache of a prompt", n_bytes, keys)]
    memory.require("generation", parts, free)
    if width > 1 and model.step is not None:
        product = memory.largest_product(jax.make_jaxpr(model.step)(params, start.cache, start.last_R).jaxpr)
        memory.require("generation", [*parts, Part("scores of attention or logits", product, keys)], free)
    return n_bytes
