"""Latent attention and its cache, against formulas in float64, one query, head and key at a time."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import oracle
from closeness import assert_as_by_hand
from fxf.layers.config import TransformerConfig
from fxf.layers.kinds import layer_of
from fxf.layers.layer import Context, Places
from fxf.models.transformer_lm import TransformerLMConfig, transformer_lm
from fxf.testing import assert_cached_equals_full
from helpers import random_params, random_tokens, scaled, some, table

B, T, D, H = 2, 5, 6, 3
MODEL = {"attention": "latent", "positions": "rotary", "rope_theta": 50.0, "attention_bias": "none"}
OWN = ("kv_rank", "q_rank", "rotary_width", "value_width")
CASES = {name: [{k: v for k, v in keys.items() if (k in OWN) == own} for own in (True, False)]
         for keys, name in table("latent attention")}  # fmt: skip


def layer(own, model):
    config = TransformerConfig(d_model=D, n_heads=H, layers={"attention": own}, **{**MODEL, **model})
    return layer_of(config, "attention")


def model_of(name, **sizes):
    own, keys = CASES[name]
    config = TransformerLMConfig(d_model=D, n_heads=H, **{**MODEL, **keys}, layers={"attention": own}, **sizes)
    model = transformer_lm(config, 7)
    return model, random_params(model.spec)


def by_hand(attention, weights, x_BTD):
    config, y = attention.config, np.zeros(x_BTD.shape)
    turned = (lambda _, x, position: x) if config.positions == "none" else oracle.rotate

    def latent(name, x):
        made, scale = x @ weights[name], weights[f"{name}_scale"] + config.zero_centered_scale
        return made / np.sqrt(np.square(made).mean() + config.norm_epsilon) * scale

    width, of_keys = config.head_width, weights["key"].shape[1]
    factor = config.query_scale or (width + of_keys) ** -0.5
    for b, t, h in np.ndindex(B, T, H):
        x = x_BTD[b, t]
        if attention.q_rank:
            query = latent("query_latent", x) @ weights["query_up"][:, h]
        else:
            query = x @ weights["query"][:, h]
        first = max(0, t - config.window + 1) if config.window else 0
        scores, values = [], []
        for c in range(first, t + 1):
            made = latent("latent", x_BTD[b, c]) @ weights["key_value"][:, h]
            shared = turned(config, x_BTD[b, c] @ weights["key"], c)
            of_position = turned(config, query[width:], t) @ shared
            scores.append(factor * (query[:width] @ made[:width] + of_position))
            values.append(made[width:])
        weigh = np.exp(scores) / np.exp(scores).sum()
        y[b, t] += weigh @ np.array(values) @ weights["output"][h]
    return y + (weights["output_bias"] if config.attention_bias == "output" else 0)


@pytest.mark.parametrize("name", CASES)
def test_output_and_gradient_are_those_of_the_formulas(name):
    attention = layer(*CASES[name])
    params = scaled(random_params(attention.spec()), 2)
    x = np.random.default_rng(1).normal(size=(B, T, D)).astype(np.float32)
    context = Context(Places(jnp.arange(T)[None], jnp.arange(T)[None], causal=True))
    read = lambda params, x: attention.apply(params, x, context)[0]  # noqa: E731
    assert_as_by_hand(read, functools.partial(by_hand, attention), (params, x))


@some("name", CASES, ["as DeepSeek-V3"])
def test_steps_with_absorbed_products_equal_the_whole_sequence(name):
    spread = {"position_range": 49, "position_gap": 3} if name == "as DeepSeek-V3" else {}
    model, params = model_of(name, n_layers=2, d_ff=5, max_len=16, **spread)
    assert_cached_equals_full(model, params, {"inputs": random_tokens((2, 6))}, capacities=[6])


def test_a_cache_holds_the_latents_and_the_shared_keys_alone():
    batch = {"inputs": random_tokens((B, 3)), "lengths": np.array([2, 3], np.int32)}
    for name, widths in (("as DeepSeek-V3", (7, 2)), ("widths by default, queries from the stream", (32, 4))):
        model, params = model_of(name, n_layers=1)
        shapes = jax.eval_shape(functools.partial(model.prefill, length=11), params, batch)
        assert [x.shape for x in jax.tree.leaves(shapes.layers)] == [(B, 11, width) for width in widths]
