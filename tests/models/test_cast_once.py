"""Weights that decoding casts once."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fxf.base.weights import flatten
from fxf.models.cast_once import cast_once
from fxf.models.decoder import Decoder, prefill
from fxf.models.steps import PromptGroup
from helpers import random_params, random_tokens, small_model

NEW = 4
PROMPTS = {"tokens": random_tokens((1, 5)), "lengths": np.array([4], np.int32)}
MODELS = [{"tied_embeddings": True, "attention_bias": "all"}, {"attention": "latent", "positions": "rotary"}]


@functools.cache
def by_steps(changes):
    """Returns model, params, and the arguments and results of the first steps of greedy decoding, which cast anew."""
    model, _ = small_model(dtype="bfloat16", n_layers=1, **dict(changes))
    params, step = random_params(model.spec), jax.jit(model.step)
    prompts = PromptGroup((), PROMPTS, NEW).whole()
    cache, last = jax.jit(lambda params: prefill(model, params, prompts, 1, NEW))(params)
    steps = []
    for _ in range(NEW):
        arguments = cache, last.reshape(-1)
        logits, cache = results = step(params, *arguments)
        last = jnp.argmax(logits, axis=-1).astype(jnp.int32)
        steps.append((arguments, results, int(last[0])))
    return model, params, steps


@pytest.mark.parametrize("changes", MODELS, ids=str)
def test_a_step_with_weights_cast_before_has_the_bits_of_one_that_casts_them(changes):
    model, params, steps = by_steps((*changes.items(),))
    cast, rest = cast_once(model.step, params, *steps[0][0], dtype=model.dtype)
    weights, rest = jax.jit(cast)(params), jax.jit(rest)
    for arguments, results, _ in steps:
        jax.tree.map(np.testing.assert_array_equal, rest(weights, *arguments), results)
    # Tokens read the table in float32. Where it also makes logits, these read it in bfloat16.
    shapes, sizes = (
        {w.shape for w in weights if w.dtype == jnp.float32},
        [w.size for w in weights if w.dtype != jnp.float32],
    )
    table, of_positions = params["embedding"]["table"], model.max_len * params["embedding"]["table"].shape[1]
    matrices = [w.size for path, w in flatten(params).items() if w.ndim > 1 and "bias" not in path]
    assert table.shape in shapes
    assert sum(sizes) >= sum(matrices) - of_positions - (0 if "tied_embeddings" in changes else table.size)


@pytest.mark.parametrize("changes", MODELS, ids=str)
def test_decoding_and_a_stream_find_the_tokens_of_steps_that_cast_anew(changes):
    model, params, steps = by_steps((*changes.items(),))
    expected, decoder = [token for *_, token in steps], Decoder(model, -1)
    assert decoder(params, PROMPTS, NEW)[0].tolist() == [[expected]]
    for _ in range(2):  # the second one compiles nothing
        *_, streamed = decoder.stream(params, PromptGroup((), PROMPTS, NEW))
        assert streamed == expected
    assert decoder.gone_on._cache_size() == 1
