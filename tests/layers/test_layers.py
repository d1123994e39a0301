"""Each layer against the float64 oracle of seed 004."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import oracle
from fxf.layers.attention import attention, attention_spec
from fxf.layers.block import block, block_spec
from fxf.layers.dropout import dropout
from fxf.layers.embedding import embedding, embedding_spec, final_layer, final_layer_spec
from fxf.layers.feed_forward import feed_forward, feed_forward_spec
from fxf.layers.normalization import normalization_spec, normalize
from fxf.layers.positions import positional_encoding, positional_encoding_spec
from fxf.weights import initialize
from helpers import random_params, small

B, T, D = 3, 5, 6
TOLERANCE = {"rtol": 0, "atol": 1e-5}


def vectors(seed=1):
    return np.random.default_rng(seed).normal(size=(B, T, D)).astype(np.float32)


def row_by_row(layer, params, x, *args):
    weights = oracle.float64(params)
    return np.stack([layer(weights, np.asarray(row, np.float64), *args) for row in x])


def positions():
    return jnp.arange(T)[None]


def test_embedding_looks_up_the_row_of_each_token():
    params = random_params(embedding_spec(small(), 7))
    tokens = np.array([[0, 6, 3], [2, 2, 5]])
    expected = np.stack([oracle.embedding(oracle.float64(params), row) for row in tokens])
    np.testing.assert_allclose(embedding(params, tokens), expected, **TOLERANCE)


@pytest.mark.parametrize("d_model", [1, 6, 7])
def test_positions_start_as_the_seeds_sinusoids_counted_from_one(d_model):
    spec = positional_encoding_spec(small(d_model=d_model, n_heads=1, max_len=11))
    table = initialize(spec, jax.random.key(0))["table"]
    expected = [[oracle.sinusoid(pos, axis, d_model) for axis in range(d_model)] for pos in range(1, 12)]
    np.testing.assert_allclose(table, expected, **TOLERANCE)


def test_positional_encoding_adds_its_trained_rows():
    params = random_params(positional_encoding_spec(small()))
    x = vectors()
    expected = row_by_row(oracle.positional_encoding, params, x)
    np.testing.assert_allclose(positional_encoding(params, x, positions()), expected, **TOLERANCE)


def test_normalization_divides_by_deviation_plus_epsilon():
    params = random_params(normalization_spec(D))
    for scale in (1.0, 1e-6):  # at the small scale epsilon weighs as much as the deviation
        x = vectors() * np.float32(scale)
        np.testing.assert_allclose(normalize(params, x), row_by_row(oracle.normalize, params, x), **TOLERANCE)


def test_normalization_of_a_constant_vector_has_a_finite_gradient():
    params = random_params(normalization_spec(D))
    gradient = jax.grad(lambda x: normalize(params, x).sum())(jnp.ones((1, D)))
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("n_heads", [1, 2, 3])
def test_attention_is_the_seeds_multi_head_causal_attention(n_heads):
    params = random_params(attention_spec(small(n_heads=n_heads)))
    x = vectors()
    actual, _ = attention(params, x, positions())
    np.testing.assert_allclose(actual, row_by_row(oracle.causal_attention, params, x), **TOLERANCE)


def test_feed_forward_normalizes_inside():
    params = random_params(feed_forward_spec(small()))
    x = vectors()
    np.testing.assert_allclose(feed_forward(params, x), row_by_row(oracle.feed_forward, params, x), **TOLERANCE)


@pytest.mark.parametrize("form", ["definition", "idea"])
def test_block_is_the_seeds_definition_or_its_idea(form):
    config = small(block=form)
    params = random_params(block_spec(config))
    x = vectors()
    actual, _ = block(config, params, x, positions())
    np.testing.assert_allclose(actual, row_by_row(oracle.decoder_block, params, x, form), **TOLERANCE)


def test_final_layer_is_linear_with_a_bias():
    params = random_params(final_layer_spec(small(), 7))
    x = vectors()
    np.testing.assert_allclose(final_layer(params, x), row_by_row(oracle.final_layer, params, x), **TOLERANCE)


def test_dropout_keeps_the_mean_and_drops_its_share():
    dropped = np.asarray(dropout(jax.random.key(0), jnp.ones((97, 101)), 0.25))
    assert set(np.unique(dropped)) == {0.0, np.float32(1 / 0.75)}
    assert abs((dropped == 0).mean() - 0.25) < 0.02


def test_dropout_does_nothing_without_a_key():
    np.testing.assert_array_equal(dropout(None, jnp.ones((3, 5)), 0.25), np.ones((3, 5)))
