import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from fxf.weights import initialize
from helpers import VOCAB_SIZE, random_tokens, small_model


def inputs(tokens):
    return {"inputs": tokens}


def apply(model, params, tokens, rng=None):
    return jax.jit(model.apply)(params, inputs(tokens), rng=rng)


@pytest.mark.parametrize("form", ["definition", "idea"])
@pytest.mark.parametrize("n_heads", [1, 3])
def test_logits_equal_the_oracle(form, n_heads):
    model, params = small_model(block=form, n_heads=n_heads)
    tokens = random_tokens((3, 11))
    expected = np.stack([oracle.transformer_lm(oracle.float64(params), row, form) for row in tokens])
    np.testing.assert_allclose(apply(model, params, tokens), expected, rtol=0, atol=1e-5)


def test_logits_equal_the_oracle_at_larger_widths_and_the_default_init():
    model, _ = small_model(vocab_size=31, d_model=48, d_ff=61, n_heads=4, n_layers=3)
    params = initialize(model.spec, jax.random.key(3))
    tokens = random_tokens((2, 13), 31)
    expected = np.stack([oracle.transformer_lm(oracle.float64(params), row) for row in tokens])
    np.testing.assert_allclose(apply(model, params, tokens), expected, rtol=0, atol=1e-5)


@settings(max_examples=10)
@given(
    n_layers=st.integers(1, 2),
    n_heads=st.integers(1, 4),
    head_dim=st.integers(1, 5),
    d_ff=st.integers(1, 9),
    length=st.integers(2, 9),
    block=st.sampled_from(["definition", "idea"]),
    scan_blocks=st.booleans(),
    data=st.data(),
)
def test_no_logit_depends_on_a_later_token(n_layers, n_heads, head_dim, d_ff, length, block, scan_blocks, data):
    """By gradient: the derivative of a position's logits by every later embedding is exactly zero."""
    model, params = small_model(
        n_layers=n_layers,
        n_heads=n_heads,
        d_model=n_heads * head_dim,
        d_ff=d_ff,
        max_len=length,
        block=block,
        scan_blocks=scan_blocks,
        vocab_size=length,
    )
    position = data.draw(st.integers(0, length - 1))
    tokens = np.arange(length)[None]  # token t stands at position t only, so its row shows who read it

    def logits_at_position(table):
        changed = {**params, "embedding": {"table": table}}
        weights = jnp.arange(1.0, length + 1)
        return (model.apply(changed, inputs(tokens))[0, position] * weights).sum()

    gradient = np.asarray(jax.jit(jax.grad(logits_at_position))(params["embedding"]["table"]))
    assert np.abs(gradient[position + 1 :]).sum() == 0
    if n_heads * head_dim > 2:  # vectors of one or two coordinates normalize to constants
        assert np.abs(gradient[: position + 1]).sum() > 0


def test_scanned_blocks_equal_unrolled_blocks():
    tokens = random_tokens((3, 11))
    (unrolled, params), (scanned, _) = small_model(n_layers=3), small_model(n_layers=3, scan_blocks=True)
    expected = apply(unrolled, params, tokens)
    np.testing.assert_allclose(apply(scanned, params, tokens), expected, rtol=0, atol=1e-6)


def test_dropout_changes_logits_by_key_and_not_without_one():
    tokens = random_tokens((3, 11))
    (model, params), (plain, _) = small_model(dropout=0.5), small_model()
    a, b = (apply(model, params, tokens, jax.random.key(seed)) for seed in (0, 1))
    assert not np.allclose(a, b)
    np.testing.assert_array_equal(a, apply(model, params, tokens, jax.random.key(0)))
    np.testing.assert_array_equal(apply(model, params, tokens), apply(plain, params, tokens))


def test_without_a_key_the_program_draws_nothing():
    tokens = random_tokens((1, 5))
    model, params = small_model(dropout=0.5)
    programs = [
        jax.jit(lambda p, rng=rng: model.apply(p, inputs(tokens), rng=rng)).lower(params).as_text()
        for rng in (None, jax.random.key(0))
    ]
    assert ["threefry" in program for program in programs] == [False, True]


@pytest.mark.parametrize("scan_blocks", [False, True])
def test_prefill_and_cached_steps_give_the_logits_of_the_full_forward(scan_blocks):
    model, params = small_model(scan_blocks=scan_blocks)
    tokens = random_tokens((4, 11))
    full = apply(model, params, tokens)
    lengths = np.array([0, 3, 5, 2])  # unequal prompts, padded with tokens that must not be read
    prefill, step = jax.jit(model.prefill, static_argnums=2), jax.jit(model.step)
    cache = prefill(params, {"inputs": tokens[:, :5], "lengths": lengths}, 11)
    for i in range(6):
        at = lengths + i
        logits, cache = step(params, cache, tokens[np.arange(4), at])
        np.testing.assert_allclose(logits, full[np.arange(4), at], rtol=0, atol=1e-5)


def test_uniform_init_draws_every_weight_between_minus_half_and_half():
    model, _ = small_model(init="uniform", d_model=48, d_ff=61, n_heads=4)
    for weight in jax.tree.leaves(initialize(model.spec, jax.random.key(0))):
        assert np.abs(weight).max() <= 0.5
        assert np.ptp(weight) > 0.2


def test_vocabulary_size_is_that_of_the_logits():
    model, params = small_model()
    assert model.apply(params, inputs(random_tokens((2, 5)))).shape == (2, 5, VOCAB_SIZE)
