"""Properties of attention and positions that the oracles of models do not cover."""

import jax
import numpy as np
import pytest

import oracle
from closeness import assert_close
from fxf.base.errors import warn_of_slips
from fxf.layers.kinds import ATTENTIONS
from fxf.layers.positions import alibi_geometric_slopes, alibi_slopes, places_of
from fxf.models.transformer_lm import MaskedLMConfig, masked_lm
from helpers import applied, attention_of, places, random_params, random_tokens, scaled, small, small_model


def test_alibi_has_the_slopes_of_the_paper():
    assert alibi_geometric_slopes(8) == alibi_slopes(8) == [2.0**-h for h in range(1, 9)]
    assert alibi_geometric_slopes(6) == pytest.approx([2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3])


def test_the_memory_of_linear_attention_does_not_grow_with_the_length():
    model, params = small_model(attention="linear", max_len=1000)
    prompt = {"inputs": random_tokens((1, 3)), "lengths": np.array([3])}
    caches = [jax.eval_shape(lambda n=n: model.prefill(params, prompt, n)).layers for n in (10, 1000)]
    assert jax.tree.map(np.shape, caches[0]) == jax.tree.map(np.shape, caches[1])


def positions_of(config, length, seed):
    """Returns the positions of 50 rows, drawn with a seed, or without a key."""
    key = None if seed is None else jax.random.key(seed)
    return places_of(config, {"inputs": np.zeros((50, length), np.int32)}, key, causal=True).positions


def test_random_positions_increase_differ_by_key_and_sequence_and_have_all_gaps():
    a, b = jax.device_get(jax.jit(lambda: [positions_of(small(position_range=41), 11, seed) for seed in (0, 1)])())
    assert len({tuple(row) for row in [*a, *b]}) == 100
    assert (np.diff(a) > 0).all() and set(a.ravel()) == set(range(41))
    assert np.diff(a).mean() == pytest.approx(42 / 12, abs=0.2)  # 11 drawn from 41


def test_stretched_positions_are_multiples_of_a_factor_per_row_and_plain_without_a_key():
    """In a compiled program, a position that is a product may differ from itself by rounding."""
    config = small(position_stretch=3.0, positions="rotary")

    def found():
        drawn = positions_of(config, 37, 0)
        stretched = places(37).replace(positions=drawn)
        return drawn, positions_of(config, 37, None), stretched.sees(stretched, window=1)

    drawn, counted, seen = jax.device_get(jax.jit(found)())
    factors = drawn[:, 1]
    assert_close(drawn, factors[:, None] * np.arange(37), operations=8)
    assert factors.min() >= 1 and factors.max() <= 3 and np.ptp(factors) > 1.5
    np.testing.assert_array_equal(counted, np.arange(37)[None])
    np.testing.assert_array_equal(seen, np.tile(np.eye(37, dtype=bool), (50, 1, 1)))


def test_an_encoder_equals_the_oracle_whatever_its_attention_and_does_not_read_padding():
    keys = ("attention", "positions", "window", "feature_map")  # other kinds of attention have oracles of their own
    kinds = [("softmax", "rotary", 2, "elu"), ("expressive", "alibi", 0, "elu"), ("linear", "none", 0, "exp")]
    configs = [small(MaskedLMConfig, d_model=12, **dict(zip(keys, kind, strict=True))) for kind in kinds]
    models, tokens = [masked_lm(config, 7) for config in configs], random_tokens((2, 7))
    params = scaled(random_params(models[0].spec), 2)  # so that exponentials are large
    batch = {"inputs": tokens, "input_mask": np.tri(7, dtype=bool)[[4, 2]]}
    of_all = jax.jit(lambda params: [model.apply(params, batch) for model in models])(params)
    for config, logits in zip(configs, of_all, strict=True):
        assert np.isfinite(logits).all()  # also if a window has only padding
        for row, n, found in zip(tokens, (5, 3), logits, strict=True):
            expected = oracle.transformer_lm(config, oracle.float64(params), row[:n], oracle.to_all)
            assert_close({config.attention: found[:n]}, {config.attention: expected})


def test_zero_vectors_have_a_finite_gradient():
    layers = {kind: attention_of(small(attention=kind, positions="none")) for kind in ATTENTIONS}

    def total(params, x):
        return sum(applied(layer, params[kind], x).sum() for kind, layer in layers.items())

    params = {kind: random_params(layer.spec()) for kind, layer in layers.items()}
    found = jax.jit(jax.grad(total))(params, np.zeros((1, 3, 6), np.float32))
    assert not [kind for kind, of_kind in found.items() if not all(np.isfinite(g).all() for g in of_kind.values())]


def test_a_method_that_overrides_nothing_for_a_slip_is_warned_of(caplog):
    class Mine(ATTENTIONS["softmax"]):
        weight = outputs = biases = unlike = lambda self: self.biases()
        by_rows, by_document, keeps = False, False, True

    warn_of_slips(Mine)
    assert {message.split("Mine.")[1].split()[0] for message in caplog.messages} == {"weight", "outputs", "by_rows"}
    said = f"warning: {__name__}: Mine.weight overrides nothing, and no method of the class reads it"
    assert f"{said}; did you mean 'weigh'?" in caplog.messages
