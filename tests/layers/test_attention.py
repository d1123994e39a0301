"""The laws of attention and of positions, for every kind that they hold for."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
from closeness import assert_close
from fxf.base.errors import UserError
from fxf.layers import linear_attention
from fxf.layers.kinds import ATTENTIONS
from fxf.layers.linear_attention import Associations, causal_mean
from fxf.layers.positions import alibi_geometric_slopes, alibi_slopes, places_of, rotary
from fxf.models.transformer_lm import MaskedLMConfig, masked_lm, transformer_lm
from helpers import applied, attention_of, examples, places, random_params, random_tokens, refusals, small, small_model

EVERY_KIND = pytest.mark.parametrize("kind", ATTENTIONS)


def vectors(length, d_model=6, seed=1):
    return np.random.default_rng(seed).normal(size=(2, length, d_model)).astype(np.float32)


@pytest.mark.parametrize(
    ("kind", "positions", "window"),
    [
        *((kind, "none", 0) for kind in ATTENTIONS),
        ("softmax", "rotary", 3),
        ("expressive", "alibi", 3),
    ],
)
def test_causal_attention_reads_no_later_vector_and_every_earlier_one_in_its_window(kind, positions, window):
    config = small(attention=kind, positions=positions, window=window)
    params = random_params(attention_of(config).spec())
    x = vectors(7)
    jacobian = jax.jit(jax.jacobian(lambda x: applied(attention_of(config), params, x[None])[0]))(x[0])  # [T, D, T, D]
    reads = np.abs(jacobian).sum((1, 3)) > 0
    t, s = np.indices((7, 7))
    np.testing.assert_array_equal(reads, (s <= t) & ((t - s < window) if window else True))


@functools.cache
def without_positions(kind):
    model = masked_lm(small(MaskedLMConfig, attention=kind, positions="none", n_layers=1), 7)
    return jax.jit(model.apply), random_params(model.spec)


@EVERY_KIND
def test_vectors_of_zeros_have_a_gradient(kind):
    layer = attention_of(small(attention=kind, positions="none"))
    gradient = jax.jit(jax.grad(lambda p, x: applied(layer, p, x).sum(), argnums=(0, 1)))
    found = gradient(random_params(layer.spec()), np.zeros((2, 5, 6), np.float32))
    assert all(np.isfinite(g).all() for g in jax.tree.leaves(found))


@EVERY_KIND
@examples(5)
@given(st.permutations(range(5)))
def test_bidirectional_attention_without_positions_is_permutation_equivariant(kind, order):
    (apply, params), tokens = without_positions(kind), random_tokens((2, 5))
    plain, permuted = (np.asarray(apply(params, {"inputs": t})) for t in (tokens, tokens[:, list(order)]))
    assert_close(permuted, plain[:, list(order)])


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"rope_theta": 50.0},
        {"rope_factor": 3.0},
        {"rope_theta": 300.0, "rope_factor": 8.0, "rope_trained_len": 64},  # wavelengths of 6, 26, 109 and 453 tokens
        {"rope_theta": 300.0, "rope_factor": 8.0, "rope_trained_len": 400},  # the third between 100 and 400
    ],
)
def test_rotary_turns_vectors_by_the_wavelengths_of_the_config_and_keeps_their_length(changes):
    config, x = small(positions="rotary", **changes), vectors(5, 8)[:, None]
    turned = jax.jit(lambda x: rotary(config, x, jnp.arange(5)[None]))(x)
    expected = [[oracle.rotate(config, row.astype(np.float64), t) for t, row in enumerate(rows[0])] for rows in x]
    assert_close(turned[:, 0], expected)
    assert_close(np.linalg.norm(turned, axis=-1), np.linalg.norm(x, axis=-1))


def test_alibi_slopes_of_the_paper():
    assert alibi_geometric_slopes(8) == alibi_slopes(8) == [2.0**-h for h in range(1, 9)]
    expected = np.array([2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3])
    assert_close(np.array(alibi_geometric_slopes(6)), expected, operations=8)


@pytest.mark.parametrize(
    ("chunk", "feature_map"),
    [*((3, feature_map) for feature_map in linear_attention.FEATURE_MAPS), (1, "elu"), (64, "elu")],
)
def test_linear_attention_in_chunks_equals_its_recurrence_token_by_token(monkeypatch, feature_map, chunk):
    """The recurrence of seed 002: W_m = W_(m-1) + V_m ⊗ K_m, here with features of the keys, read by the query."""
    monkeypatch.setattr(linear_attention, "CHUNK", chunk)
    config = small(attention="linear", feature_map=feature_map)
    rng = np.random.default_rng(0)
    q, k, v = rng.normal(size=(3, 2, 3, 7, 2)).astype(np.float32)

    @jax.jit
    def attended(q, k, v):
        features, start = attention_of(config).features, Associations(jnp.zeros((2, 3, 2, 2)), jnp.zeros((2, 3, 2)))
        return causal_mean(features(q)[:, :, None], features(k), v, start)[0][:, :, 0]

    actual = np.asarray(attended(q, k, v))
    for b in range(2):
        for h in range(3):
            memory, total = np.zeros((2, 2)), np.zeros(2)
            for t in range(7):
                key = oracle.feature_map(config, k[b, h, t].astype(np.float64))
                memory, total = memory + np.outer(v[b, h, t], key), total + key
                query = oracle.feature_map(config, q[b, h, t].astype(np.float64))
                # Without feature map the weights may have either sign, and their sum may be small.
                products = [query @ oracle.feature_map(config, row.astype(np.float64)) for row in k[b, h, : t + 1]]
                largest = np.abs(v[b, h]).max() * np.abs(products).sum() / abs(total @ query)
                assert_close(actual[b, h, t], memory @ query / (total @ query), largest=largest)


def test_the_memory_of_linear_attention_does_not_grow_with_the_length():
    model, params = small_model(attention="linear", max_len=1000)
    prompt = {"inputs": random_tokens((1, 3)), "lengths": np.array([3])}
    caches = [jax.eval_shape(lambda n=n: model.prefill(params, prompt, n)).layers for n in (10, 1000)]
    assert jax.tree.map(jnp.shape, caches[0]) == jax.tree.map(jnp.shape, caches[1])


def positions_of(config, tokens, rng):
    return places_of(config, {"inputs": tokens}, rng, causal=True).positions


def test_random_positions_are_distinct_and_increasing_differ_by_key_and_by_sequence_and_have_all_gaps():
    config, tokens = small(position_range=41), np.zeros((50, 11), np.int32)
    draw = jax.jit(lambda seed: positions_of(config, tokens, jax.random.key(seed)))
    a, b = (np.asarray(draw(seed)) for seed in (0, 1))
    assert len({tuple(row) for row in [*a, *b]}) == 100
    assert (np.diff(a) > 0).all()
    assert set(a.ravel()) == set(range(41))
    assert np.diff(a).mean() == pytest.approx(42 / 12, abs=0.2)  # of 11 drawn from 41


def test_what_a_model_says_outside_training_does_not_depend_on_how_long_sequences_may_get():
    tokens = {"inputs": random_tokens((2, 5))}
    choices = {"positions": "rotary", "position_range": 41, "position_gap": 2}
    models = [transformer_lm(small(max_len=max_len, **choices), 7) for max_len in (5, 20)]
    models.append(transformer_lm(small(**{**choices, "position_gap": 1}), 7))
    params = random_params(models[0].spec)
    logits, same, nearer = jax.jit(lambda params: [model.apply(params, tokens) for model in models])(params)
    np.testing.assert_array_equal(same, logits)
    assert not np.allclose(nearer, logits)


def test_stretched_positions_are_multiples_of_a_factor_of_each_row_and_are_counted_without_a_key():
    config, tokens = small(position_stretch=3.0, positions="rotary"), np.zeros((50, 7), np.int32)
    drawn, counted = jax.device_get(
        jax.jit(lambda: [positions_of(config, tokens, k) for k in (jax.random.key(0), None)])()
    )
    factors = drawn[:, 1]
    assert_close(drawn, factors[:, None] * np.arange(7)[None], operations=8)
    assert factors.min() >= 1 and factors.max() <= 3 and np.ptp(factors) > 1.5
    np.testing.assert_array_equal(counted, np.arange(7)[None])


@pytest.mark.parametrize("kind", ["softmax", "expressive", "linear"])  # other kinds have oracles of their own
def test_an_encoder_equals_the_oracle_whatever_its_attention_and_does_not_read_padding(kind):
    config = small(MaskedLMConfig, attention=kind)
    model = masked_lm(config, 7)
    params, tokens = random_params(model.spec), random_tokens((2, 5))
    weights = oracle.float64(params)
    expected = [oracle.transformer_lm(config, weights, row, allowed=lambda t, s: True) for row in tokens]
    mask = np.arange(7)[None] < np.array([[5], [5]])
    padded = {"inputs": np.pad(tokens, ((0, 0), (0, 2)), constant_values=6), "input_mask": mask}
    found = jax.jit(lambda params: [model.apply(params, padded)[:, :5], model.apply(params, {"inputs": tokens})])
    for logits in found(params):
        assert_close(logits, expected)


NOT_TOGETHER = """
    attention='sofmax': model.attention: expected one of … did you mean 'softmax'
    positions='rotari': model.positions: expected one of … did you mean 'rotary'
    block='ideal': model.block: expected one of … did you mean 'idea'
    feed_forward='dens': model.feed_forward: expected one of dense, moe; … did you mean 'dense'
    activation='rellu': model.activation: expected one of … did you mean 'relu'
    attention='linear', positions='rotary': model.positions: it acts on the scores
    attention='linear', positions='alibi': model.positions: it acts on the scores
    attention='linear', window=3: model.window: it acts on the scores
    attention='linear', attention_dropout=0.1: model.attention_dropout: it acts on the scores
    attention='linear', attention_softcap=5.0: model.attention_softcap: it acts on the scores
    attention='linear', query_scale=0.5: model.query_scale: it acts on the scores
    attention='linear', attention_implementation='chunked': model.attention_implementation: it acts on the scores
    attention='linear', feature_map='cos': model.feature_map: expected one of elu
    positions='alibi', rope_theta=500.0: model.rope_theta: model.positions 'alibi' does not read it
    positions='sinusoidal_concatenated', d_model=9: model.positions: … needs an even model.d_model, got 9
    positions='learned', position_stretch=2.0: model.position_stretch: stretched positions have no row
    positions='rotary', d_model=9: model.positions: 'rotary' needs heads of even width, got 3
    blocks='atention+feed_forward': model.blocks: expected one of … got 'atention'; did you mean 'attention'
    blocks='3*(attention': model.blocks: '3*(attention' has an open parenthesis
    blocks='attention+attention': model.blocks: 'attention+attention' names a layer twice
    blocks='attention,': model.blocks: 'attention,' … names no block
    blocks='3(attention)': model.blocks: expected one of … got '3(attention)'
    blocks='2*(attention); attention', n_layers=1: model.n_layers: model.blocks begins with 2 blocks; got 1
    blocks='attention', window=3, global_every=2: model.global_every: only with model.blocks 'attention+feed_forward'
    """


@pytest.mark.parametrize(("changes", "message"), refusals(NOT_TOGETHER))
def test_choices_that_do_not_go_together_are_named(changes, message):
    with pytest.raises(UserError, match=f"^{message}"):
        transformer_lm(small(**changes), 7)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ({"attention": {"windw": 3}}, r"model\.layers\.attention\.windw: unknown key; did you mean 'window'"),
        ({"attention": {"window": -3}}, r"model\.layers\.attention\.window: expected at least 0, got -3"),
        ({"feed_forward": {"kind": "dens"}}, r"model\.blocks: expected one of .*; got 'dens'"),
    ],
)
def test_a_wrong_key_of_a_single_layer_is_named(layers, message):
    with pytest.raises(UserError, match=f"^{message}"):
        transformer_lm(small(layers=layers), 7)


def test_a_token_sees_itself_whatever_its_position():
    """Compiled, a position that is a product may differ from itself by a rounding."""
    config, tokens = small(position_stretch=3.0, positions="rotary"), np.zeros((50, 37), np.int32)

    def seen(key):
        stretched = places(37).replace(positions=positions_of(config, tokens, key))
        return stretched.sees(stretched, window=1)

    np.testing.assert_array_equal(jax.jit(seen)(jax.random.key(0)), np.tile(np.eye(37, dtype=bool), (50, 1, 1)))
