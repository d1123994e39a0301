"""Weights that decoding casts once."""

import jax
import jax.numpy as jnp
import numpy as np

from fxf.base.weights import flatten
from fxf.models.cast_once import cast_once
from fxf.models.decoder import Decoder, prefill
from fxf.models.steps import PromptGroup
from helpers import random_tokens, small_model, some

NEW = 4
PROMPTS = {"tokens": random_tokens((1, 5)), "lengths": np.array([4], np.int32)}
MODELS = {
    "tied": {"tied_embeddings": True, "attention_bias": "all"},
    "latent": {"attention": "latent", "positions": "rotary"},
}


@some("name", MODELS, ["tied"])
def test_weights_that_are_cast_once_give_the_bits_and_tokens_of_steps_that_cast_anew(name):
    model, params = small_model(dtype="bfloat16", **MODELS[name])
    step = jax.jit(model.step)
    prompts = PromptGroup((), PROMPTS, NEW).whole()
    cache, last = jax.jit(lambda params: prefill(model, params, prompts, 1, NEW))(params)
    cast, rest = cast_once(model.step, params, cache, last.reshape(-1), dtype=model.dtype)
    weights, rest, expected = jax.jit(cast)(params), jax.jit(rest), []
    for _ in range(NEW):
        arguments = cache, last.reshape(-1)
        logits, cache = results = step(params, *arguments)
        jax.tree.map(np.testing.assert_array_equal, rest(weights, *arguments), results)
        last = jnp.argmax(logits, axis=-1).astype(jnp.int32)
        expected.append(int(last[0]))
    # Tokens read the table in float32. Where it also makes logits, these read it in bfloat16.
    table, narrow = params["embedding"]["table"], [w.size for w in weights if w.dtype == jnp.bfloat16]
    matrices = [w.size for path, w in flatten(params).items() if w.ndim > 1 and "bias" not in path]
    assert table.shape in {w.shape for w in weights if w.dtype == jnp.float32}
    of_positions = model.max_len * table.shape[1]
    assert sum(narrow) >= sum(matrices) - of_positions - (0 if name == "tied" else table.size)

    decoder = Decoder(model, -1)
    assert decoder(params, PROMPTS, NEW)[0].tolist() == [[expected]]
    for _ in range(2):  # the second one compiles nothing
        *_, streamed = decoder.stream(params, PromptGroup((), PROMPTS, NEW))
        assert streamed == expected
    assert decoder.gone_on._cache_size() == 1
