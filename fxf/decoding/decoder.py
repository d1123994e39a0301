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
from fxf.machine.compiled import CompiledByShape
from fxf.machine.memory import Part
from fxf.machine.random_keys import random_key
from fxf.machine.status import stage
from fxf.machine.work import by_threads, n_cores
from fxf.models.model import Model
from fxf.weights import Params, shapes

HYPOTHESES = 320  # decoded at a time; more if each slot has at least PROMPTS_PER_SLOT prompts
# Most operations of a step of a small model are too small for several cores, so each core of a CPU decodes a stream of
# prompts by a program of its own: if a stream has so many hypotheses, and the weights have at most so many bytes.
WORTHWHILE, SMALL_WEIGHTS = 8, 2**24
PROMPTS_PER_SLOT = 8
LARGEST_CACHE = 2**28  # bytes


class Placement(NamedTuple):
    """How devices share the work of a decoder.

    Attributes:
      gather, shard_rows: constrain, inside the program, how devices share the params and the rows of a batch.
      out_shardings: the sharding of the outputs, as in `jax.jit`.
      n_devices: the number of these devices.
    """

    gather: Callable[[Params], Params] = lambda params: params
    shard_rows: Callable[[Any], Any] = lambda rows: rows
    out_shardings: Any = None
    n_devices: int = 1


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
    search = CompiledByShape(program, compiling, programs)

    def decode(params: Params, prompts: Prompts, max_tokens: int) -> tuple[np.ndarray, np.ndarray | None]:
        n_prompts, width = len(prompts["tokens"]), config.beam_width
        row_shape = (max_tokens, *((name, value.shape[1:]) for name, value in sorted(prompts.items())))
        if row_shape not in row_bytes:
            row_bytes[row_shape] = _cache_bytes(model, prompts, method(max_tokens, random_key(seed)), width)
        n_streams = _n_streams(params, n_prompts, width, placement)
        of_stream = -(-n_prompts // n_streams)
        n_slots = _n_slots(of_stream, width, row_bytes[row_shape], n_streams)
        n_rows = n_slots if of_stream == n_slots else n_slots * 2 * PROMPTS_PER_SLOT
        n_chunks = n_streams * -(-of_stream // n_rows)
        chunks = [np.arange(first, n_prompts, n_chunks, dtype=np.int32) for first in range(n_chunks)]
        key = random_key(seed)

        def prompts_of(chunk: np.ndarray) -> Prompts:
            # Copies of the last prompt fill up the rows; they are not decoded.
            numbers = np.pad(chunk, (0, n_rows - len(chunk)), "edge")
            return {**{name: np.asarray(value)[numbers] for name, value in prompts.items()}, "numbers": numbers}

        def searched(chunk: np.ndarray) -> Any:
            found = compiled(params, prompts_of(chunk), np.int32(len(chunk)), key)
            return jax.tree.map(lambda x: x[: len(chunk)], jax.device_get(found))

        outputs, static = [], {"max_tokens": max_tokens, "n_slots": n_slots}
        compiled = search.program(params, prompts_of(chunks[0]), np.int32(0), key, **static)
        with stage("decoding", n_prompts) as progress:
            for chunk, found in zip(chunks, by_threads(searched, chunks, n_streams), strict=True):
                outputs.append(found)
                progress.advance(len(chunk))
        order = np.argsort(np.concatenate(chunks))
        return jax.tree.map(lambda *parts: np.concatenate(parts)[order], *outputs)

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


def _n_streams(params: Params, n_prompts: int, width: int, placement: Placement) -> int:
    """Returns how many programs run side by side, each on a share of the prompts: one for each core of a CPU."""
    n_bytes = sum(weight.nbytes for weight in jax.tree.leaves(params))
    if jax.default_backend() != "cpu" or placement.n_devices > 1 or n_bytes > SMALL_WEIGHTS:
        return 1
    return max(1, min(n_cores(), n_prompts, n_prompts * width // WORTHWHILE))


def _n_slots(n_prompts: int, width: int, row_bytes: int, n_streams: int) -> int:
    """Returns how many prompts a stream decodes at a time. Similar numbers of prompts have the same program."""
    many = 2 ** int(math.log2(max(n_prompts // PROMPTS_PER_SLOT, 1)))
    limit = LARGEST_CACHE // (row_bytes * n_streams)
    return min(n_prompts, max(1, min(max(HYPOTHESES // (width * n_streams), many), limit)))


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
