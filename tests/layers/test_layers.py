"""Each layer against the float64 oracle of the seeds."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import oracle
from closeness import assert_close
from fxf.errors import UserError
from fxf.layers.attention import attention, attention_spec, cross_attention, cross_memory
from fxf.layers.block import block, block_cross_memory, block_spec
from fxf.layers.block_kinds import BLOCKS, Block
from fxf.layers.cache import KeysValues, write
from fxf.layers.dropout import dropout
from fxf.layers.embedding import embedding, embedding_spec, final_layer, final_layer_spec
from fxf.layers.feed_forward import ACTIVATIONS, feed_forward, feed_forward_spec
from fxf.layers.mask import cross_mask, self_mask
from fxf.layers.normalization import normalization_spec, normalize
from fxf.layers.positions import positional_encoding, positional_encoding_spec
from fxf.models.encoder_decoder import EncoderDecoderConfig
from fxf.weights import initialize
from helpers import random_params, small

B, T, S, D = 3, 5, 4, 6
POSITIONS = ("sinusoidal_trained", "learned", "sinusoidal", "sinusoidal_concatenated", "sinusoidal_halves")
BIASES = ("output", "all", "qkv", "none")
# Which positions of a source count: not the same in each row, and not only the first ones.
IS_TOKEN = np.array([[1, 1, 1, 1], [1, 0, 0, 0], [0, 1, 0, 1]], bool)


def vectors(seed=1, length=T):
    return np.random.default_rng(seed).normal(size=(B, length, D)).astype(np.float32)


def row_by_row(layer, params, x, *args):
    weights = oracle.float64(params)
    return np.stack([layer(*args, weights, np.asarray(row, np.float64)) for row in x])


def positions():
    return jnp.arange(T)[None]


def causal(config):
    return self_mask(config, positions(), causal=True)


@pytest.mark.parametrize("scaled", [False, True])
def test_embedding_looks_up_the_row_of_each_token_and_adds_its_position(scaled):
    config = small()
    params = random_params(embedding_spec(config, 7))
    tokens = np.array([[0, 6, 3], [2, 2, 5]])
    expected = [oracle.embedding(config, oracle.float64(params), row, scaled) for row in tokens]
    read = jax.jit(lambda tokens: embedding(config, params, tokens, jnp.arange(3)[None], scaled=scaled))
    actual = read(tokens)
    assert_close(actual, expected)


@pytest.mark.parametrize("scaled", [False, True])
def test_embeddings_start_with_unit_variance_as_they_are_read(scaled):
    spec = embedding_spec(small(d_model=96, positions="sinusoidal"), 101, unit_rows=scaled)
    table = jax.jit(lambda: initialize(spec, jax.random.key(0))["table"])()
    assert np.std(table) * (math.sqrt(96) if scaled else 1) == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize("d_model", [1, 6, 7])
def test_positions_start_as_the_seeds_sinusoids_counted_from_one(d_model):
    spec = positional_encoding_spec(small(d_model=d_model, n_heads=1, max_len=11), 7)
    table = jax.jit(lambda: initialize(spec, jax.random.key(0))["positions"])()
    expected = [[oracle.sinusoid(pos, axis, d_model) for axis in range(d_model)] for pos in range(1, 12)]
    assert_close(table, expected)


def test_positions_learned_from_random_start_as_large_as_those_that_start_as_sinusoids():
    tables, d_model = [], 48
    for kind, seeds in (("learned", (0, 1)), ("sinusoidal_trained", (0,))):
        spec = positional_encoding_spec(small(positions=kind, d_model=d_model, max_len=997), 7)
        draw = jax.jit(lambda seed, spec=spec: initialize(spec, jax.random.key(seed))["positions"])
        tables += [np.asarray(draw(seed)) for seed in seeds]
    random, other, sinusoids = tables
    assert not np.allclose(random, other)
    assert np.square(random).mean() == pytest.approx(np.square(sinusoids).mean(), rel=0.05)


@pytest.mark.parametrize("kind", POSITIONS)
def test_positional_encoding_adds_the_vector_of_each_position(kind):
    config = small(positions=kind)
    params = random_params(positional_encoding_spec(config, 7))
    weights, x = oracle.float64(params), vectors()
    encode = jax.jit(lambda x, at: positional_encoding(config, params, x, at))
    for at in (np.arange(T)[None], np.array([[0, 1, 2, 3, 4], [9, 3, 3, 0, 11], [12, 5, 7, 1, 2]])):
        added = np.array([[oracle.position_vector(config, weights, t) for t in row] for row in at])
        assert_close(encode(x, at), x + added)


# At the smaller scales epsilon weighs as much as what it is added to.
@pytest.mark.parametrize(
    ("inside", "epsilon", "scale"),
    [
        ("deviation", 1e-6, 1.0),
        ("deviation", 1e-6, 1e-6),
        ("deviation", 0.3, 1.0),
        ("variance", 1e-5, 1.0),
        ("variance", 1e-6, 1e-3),
        ("variance", 0.3, 1.0),
    ],
)
def test_normalization_divides_by_deviation_plus_epsilon_or_by_the_root_of_variance_plus_epsilon(
    inside, epsilon, scale
):
    config = small(norm_epsilon_in=inside, norm_epsilon=epsilon)
    params = random_params(normalization_spec(config))
    x = vectors() * np.float32(scale)
    expected = row_by_row(oracle.normalize, params, x, config)
    assert_close(jax.jit(lambda x: normalize(config, params, x))(x), expected)


@pytest.mark.parametrize("inside", ["deviation", "variance"])
def test_normalization_of_a_constant_vector_has_a_finite_gradient(inside):
    config = small(norm_epsilon_in=inside)
    params = random_params(normalization_spec(config))
    gradient = jax.jit(jax.grad(lambda x: normalize(config, params, x).sum()))(np.ones((1, D), np.float32))
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize(
    ("n_heads", "bias"),
    [
        (1, "all"),
        *((3, bias) for bias in BIASES),
    ],
)
def test_attention_is_the_seeds_multi_head_causal_attention(n_heads, bias):
    config = small(n_heads=n_heads, attention_bias=bias)
    params = random_params(attention_spec(config))
    x = vectors()
    actual = jax.jit(lambda x: attention(config, params, x, causal(config))[0])(x)
    assert_close(actual, row_by_row(oracle.causal_attention, params, x, config))


def test_attention_has_the_biases_that_its_seed_gives_it():
    biases = {kind: {name for name in attention_spec(small(attention_bias=kind)) if name.endswith("_bias")}
              for kind in BIASES}  # fmt: skip
    every = {"query_bias", "key_bias", "value_bias", "output_bias"}
    assert biases == {"output": {"output_bias"}, "all": every, "qkv": every - {"output_bias"}, "none": set()}


def test_attention_to_another_sequence_sees_what_counts_of_it_and_no_more():
    config = small()
    params = random_params(attention_spec(config))
    weights, x, z = oracle.float64(params), vectors(), vectors(2, S)
    expected = [
        oracle.attention(config, weights, x[i].astype(np.float64), z[i], lambda _, s, i=i: IS_TOKEN[i, s], True)
        for i in range(B)
    ]

    @jax.jit
    def attend(x, z):
        mask = cross_mask(IS_TOKEN)
        return cross_attention(config, params, x, cross_memory(config, params, z, mask), mask)

    assert_close(attend(x, z), expected)


def test_a_row_of_memory_serves_the_rows_that_share_it():
    config = small()
    params = random_params(attention_spec(config))
    x, z = np.concatenate([vectors(), vectors(3)]), vectors(2, S)

    @jax.jit
    def attend(z, is_token):
        mask = cross_mask(is_token)
        return cross_attention(config, params, x, cross_memory(config, params, z, mask), mask)

    shared, repeated = attend(z, IS_TOKEN), attend(np.repeat(z, 2, 0), np.repeat(IS_TOKEN, 2, 0))
    assert_close(shared, repeated)


def test_a_cache_is_written_at_each_rows_positions_and_nowhere_else():
    rng = np.random.default_rng(0)
    cache, new = (
        KeysValues(*(rng.normal(size=(B, 3, n, 2)).astype(np.float32) for _ in range(2))) for n in (T, 2)
    )  # fmt: skip
    at = np.array([[0, 1], [3, 4], [4, 2]])
    written = jax.device_get(jax.jit(write)(cache, at, new))
    for before, added, after in zip(*map(jax.tree.leaves, (cache, new, written)), strict=True):
        for b in range(B):
            for c in range(T):
                expected = added[b, :, at[b].tolist().index(c)] if c in at[b] else before[b, :, c]
                np.testing.assert_array_equal(after[b, :, c], expected)


@pytest.mark.parametrize(
    ("activation", "gated"),
    [
        *((activation, False) for activation in ACTIVATIONS),
        ("silu", True),
    ],
)
def test_feed_forward_is_two_linear_maps_with_a_nonlinearity_or_a_gate_between(activation, gated):
    config = small(activation=activation, gated=gated)
    params = random_params(feed_forward_spec(config))
    x = vectors()
    expected = row_by_row(oracle.feed_forward, params, x, config)
    assert_close(jax.jit(lambda x: feed_forward(config, params, x))(x), expected)


@pytest.mark.parametrize("form", BLOCKS)
def test_block_is_the_seeds_definition_or_its_idea_or_normalizes_after_each_sublayer(form):
    config = small(block=form)
    params = random_params(block_spec(config))
    x = vectors()
    actual = jax.jit(lambda x: block(config, params, x, causal(config))[0])(x)
    assert_close(actual, row_by_row(oracle.block, params, x, config))


def test_a_kind_of_block_computes_attention_once(monkeypatch):
    monkeypatch.setitem(BLOCKS, "none", Block(lambda x_BTD, sublayers: x_BTD))
    config = small(block="none")
    with pytest.raises(UserError, match=r"model.block: 'none' computes attention 0 times; expected once"):
        block(config, random_params(block_spec(config)), vectors(), causal(config))


@pytest.mark.parametrize(
    ("form", "normalized"),
    [
        ("pre_norm", "queries"),
        ("pre_norm", "source"),
        ("post_norm", "queries"),
        ("sandwich", "queries"),
        ("idea", "queries"),
    ],
)
def test_a_block_with_a_source_attends_to_it_after_its_own_sequence(form, normalized):
    config = small(EncoderDecoderConfig, block=form, cross_norm=normalized)
    params = random_params(block_spec(config, cross=True))
    weights, x, z = oracle.float64(params), vectors(), vectors(2, S)
    expected = [
        oracle.block(
            config,
            weights,
            x[i].astype(np.float64),
            source=z[i].astype(np.float64),
            source_allowed=lambda _, s, i=i: IS_TOKEN[i, s],
        )
        for i in range(B)
    ]

    @jax.jit
    def run(x, z):
        mask = cross_mask(IS_TOKEN)
        source = (block_cross_memory(config, params, z, mask), mask)
        return block(config, params, x, causal(config), source=source)[0]

    assert_close(run(x, z), expected)


@pytest.mark.parametrize("bias", [True, False])
def test_final_layer_is_linear_with_a_bias_or_none(bias):
    config = small(final_bias=bias)
    params = random_params(final_layer_spec(config, 7))
    assert ("bias" in params) == bias
    x = vectors()
    assert_close(jax.jit(lambda x: final_layer(config, params, x))(x), row_by_row(oracle.final_layer, params, x))


def test_dropout_keeps_the_mean_and_drops_its_share():
    dropped = np.asarray(jax.jit(lambda x: dropout(jax.random.key(0), x, 0.25))(np.ones((97, 101), np.float32)))
    assert set(np.unique(dropped)) == {0.0, np.float32(1 / 0.75)}
    assert abs((dropped == 0).mean() - 0.25) < 0.02


def test_dropout_does_nothing_without_a_key():
    np.testing.assert_array_equal(dropout(None, jnp.ones((3, 5)), 0.25), np.ones((3, 5)))


def assert_dropped(actual, whole, rate):
    """Each element is 0 or the whole one over (1 - rate), and both occur."""
    kept = np.asarray(actual) != 0
    assert_close(actual, np.where(kept, whole / (1 - rate), 0))
    assert 0 < kept.mean() < 1


def test_embedding_dropout_drops_tokens_and_positions_together():
    config = small(embedding_dropout=0.25)
    params = random_params(embedding_spec(config, 7))
    tokens = np.array([[0, 6, 3, 1, 1]] * 3)
    expected = [oracle.embedding(config, oracle.float64(params), row) for row in tokens]
    dropped = jax.jit(lambda tokens: embedding(config, params, tokens, positions(), rng=jax.random.key(0)))(tokens)
    assert_dropped(dropped, np.array(expected), 0.25)


def test_attention_dropout_drops_the_weights_of_values():
    """Where the values and the last map are the identity, attention returns its weights."""
    config = small(n_heads=1, attention_bias="none", attention_dropout=0.25)
    params = random_params(attention_spec(config)) | {"output": np.eye(D, dtype=np.float32)[None]}
    x = vectors()

    @jax.jit
    def attend(x, z):
        mask = cross_mask(np.ones((B, D), bool))
        keys = cross_memory(config, params, z, mask).keys
        memory = KeysValues(keys, jnp.broadcast_to(jnp.eye(D), (B, 1, D, D)))
        plain, dropped = (
            cross_attention(config, params, x, memory, mask, rng=rng) for rng in (None, jax.random.key(0))
        )
        return keys, plain, dropped

    keys, plain, dropped = attend(x, vectors(2, D))
    query = np.asarray(params["query"], np.float64)[:, 0]
    scores = (x.astype(np.float64) @ query) @ np.asarray(keys, np.float64)[:, 0].transpose(0, 2, 1) / math.sqrt(D)
    expected = np.apply_along_axis(oracle.softmax, -1, scores)
    assert_close(plain, expected)
    assert_dropped(dropped, expected, 0.25)


@pytest.mark.parametrize("name", ["attention", "cross_attention", "feed_forward"])
def test_dropout_drops_what_a_sublayer_adds_and_not_what_it_adds_to(name):
    config = small(EncoderDecoderConfig, dropout=0.25)
    params = jax.tree.map(np.zeros_like, jax.device_get(random_params(block_spec(config, cross=True))))
    params[name]["down_bias" if name == "feed_forward" else "output_bias"] = np.arange(1, D + 1, dtype=np.float32)
    x = vectors()

    @jax.jit
    def run(params, x):
        mask = cross_mask(IS_TOKEN)
        source = (block_cross_memory(config, params, vectors(2, S), mask), mask)
        return block(config, params, x, causal(config), source=source, rng=jax.random.key(0))[0]

    actual = np.asarray(run(params, x))
    added = np.where(np.abs(actual - x) < 1e-5, 0, actual - x)
    assert_dropped(added, np.broadcast_to(np.arange(1.0, D + 1), x.shape), 0.25)
