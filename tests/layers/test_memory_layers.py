"""Gated DeltaNet and Mamba-2 against their recurrences in float64; documents, padding, decoding and hybrid stacks."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import memories
from closeness import assert_as_by_hand
from fxf.layers import recurrence
from fxf.layers.config import TransformerConfig
from fxf.layers.layer import Context, Places
from fxf.layers.memory_layers import GatedDelta, Mamba2
from fxf.models.transformer_lm import TransformerLMConfig, transformer_lm
from fxf.testing import assert_cached_equals_full
from helpers import random_params, random_tokens

R, T, D = 2, 13, 6
CONFIG = TransformerConfig(d_model=D, n_heads=6, head_dim=2, norm_epsilon=1e-3)
KEYS = {"n_key_heads": 2, "key_dim": 5, "value_dim": 3, "n_taps": 3}
LAYERS = {"delta": (GatedDelta, memories.gated_delta), "mamba2": (Mamba2, memories.mamba2)}
DOCUMENTS = np.array([[1, 1, 1, 1, 1, 2, 2, 3, 3, 3, 3, 0, 0], [1] * 13], np.int32)  # 0 is padding
SPANS = [(0, 0, 5), (0, 5, 7), (0, 7, 11), (1, 0, 13)]
each = pytest.mark.parametrize("name", LAYERS)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(recurrence, "CHUNK", 4)


def made(name):
    layer = LAYERS[name][0](CONFIG, **KEYS)
    return layer, random_params(layer.spec())


def vectors(seed=0):
    return np.random.default_rng(seed).normal(size=(R, T, D)).astype(np.float32)


def context(documents=None, cache=None):
    places = jnp.arange(T)[None]
    return Context(Places(places, places, documents), cache=cache)


def expected(name, params, x):
    """Returns the layer's outputs by the oracle, each document on its own."""
    y = np.zeros(x.shape)
    for row, start, stop in SPANS:
        y[row, start:stop] = LAYERS[name][1](params, x[row, start:stop], CONFIG.norm_epsilon)
    return y


@each
def test_each_document_is_read_by_the_recurrence_of_the_paper_and_its_gradient_is_that_of_the_recurrence(name):
    layer, params = made(name)
    real = DOCUMENTS[..., None] > 0
    read = lambda params, x: jnp.where(real, layer.apply(params, x, context(DOCUMENTS))[0], 0)  # noqa: E731
    assert_as_by_hand(read, functools.partial(expected, name), (params, vectors()))


@each
def test_memories_stay_float32_in_bfloat16(name):
    layer, params = made(name)
    read = jax.jit(lambda x, context: layer.apply(params, x, context))
    y, after = read(vectors().astype(jnp.bfloat16), context(cache={}))
    assert y.dtype == jnp.bfloat16 and after.cache["memory"].dtype == jnp.float32
    there = read(vectors(), context())[0]
    np.testing.assert_allclose(y.astype(np.float32), there, rtol=0, atol=0.05 * np.abs(there).max())


def test_a_hybrid_stack_decodes_as_it_reads_whole_sequences_also_with_several_hypotheses():
    layers = {"delta": {**KEYS, "n_heads": 2}, "mamba2": {**KEYS, "n_heads": 2}}
    sizes = {"n_layers": 3, "d_model": 6, "d_ff": 7, "n_heads": 3, "max_len": 32, "positions": "none"}
    blocks = "delta+feed_forward, mamba2, attention"
    model = transformer_lm(TransformerLMConfig(**sizes, blocks=blocks, layers=layers), 7)
    assert_cached_equals_full(model, random_params(model.spec), {"inputs": random_tokens((3, 6))}, capacities=[6])
