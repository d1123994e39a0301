"""Positions of a walk that tokens turn, against plain loops; and attention that reads what tokens make."""

import functools

import jax
import numpy as np
import pytest

from closeness import assert_close
from fxf.runs.guests import load
from fxf.testing import assert_cached_equals_full, assert_causal, assert_padding_unread
from fxf.training.gradient import loss_and_gradient
from helpers import random_params, random_tokens, twice
from small_runs import ROOT

turns = load(ROOT / "configs/studies/turns.py")
V, H, B, T = 5, 3, 2, 9
SIZES = {"n_layers": 1, "d_model": 12, "d_ff": 11, "n_heads": H, "max_len": 150}

walked = jax.jit(turns.walk)


def params_of(turns_VH):
    return {"turns": np.asarray(turns_VH, np.float32) / 10}


def turning_model(**changes):
    model = turns.turning(turns.TurningConfig(**{**SIZES, **changes}), V)
    return model, random_params(model.spec, 3)


def looped(turns_VH, tokens_BT):
    """Returns positions and the directions behind the tokens, [B, H, T, 2], by plain loops."""
    states = np.zeros((len(tokens_BT), turns_VH.shape[1], len(tokens_BT[0]), 2))
    for b, tokens in enumerate(tokens_BT):
        for h in range(turns_VH.shape[1]):
            position, direction = 0.0, 1.0
            for t, token in enumerate(tokens):
                position += direction
                direction *= turns_VH[token, h] if t else 1
                states[b, h, t] = position, direction
    return states


def test_a_walk_is_that_of_plain_loops_and_in_parts_bit_for_bit_where_turns_are_whole():
    tokens_BT, state = random_tokens((B, T), V), np.zeros((B, H, 2), np.float32)
    rng = np.random.default_rng(0)
    turns_VH = rng.uniform(-1, 1, (V, H)).astype(np.float32)
    assert_close(walked(turns_VH, tokens_BT, state), looped(turns_VH.astype(np.float64), tokens_BT), largest=T)
    turns_VH = rng.choice([-1.0, 1.0], (V, H)).astype(np.float32)
    whole = looped(turns_VH, tokens_BT)
    np.testing.assert_array_equal(walked(turns_VH, tokens_BT, state), whole)
    for t in range(T):
        state = np.asarray(walked(turns_VH, tokens_BT[:, t : t + 1], state))[:, :, 0]
        np.testing.assert_array_equal(state, whole[:, :, t])


def test_turns_stay_within_bounds_and_scoring_rounds_them():
    raw = np.array([[-2.0, 0.3, 0.0], [1.0, -0.2, 5.0]])
    bounded = np.clip(params_of(raw)["turns"] * np.float32(10), -1, 1)
    np.testing.assert_array_equal(turns.turns_of(params_of(raw)), bounded)
    np.testing.assert_array_equal(turns.turns_of(turns.rounded(params_of(raw))), [[-1, 1, 1], [1, -1, 1]])
    gradient = jax.jit(jax.grad(lambda params: turns.turns_of(params).sum()))(params_of(raw))
    np.testing.assert_array_equal(gradient["turns"], np.full(raw.shape, 10))


def assert_decodes_as_it_reads(model, params, batch):
    """Asserts that 3 rows of at least 7 tokens are decoded, also by beams, as the full forward pass reads them."""
    n_tokens = batch["inputs"].shape[1]
    assert_cached_equals_full(model, params, batch, capacities=[n_tokens + 2])
    assert_causal(model, params, twice(batch))
    is_token_BT = np.arange(n_tokens)[None] < np.array([[n_tokens], [6], [1]])
    assert_padding_unread(model, params, twice({**batch, "input_mask": is_token_BT}))


@pytest.mark.thorough
def test_cached_decoding_and_beams_walk_as_the_full_forward_does():
    # What the tokens of a prompt see reaches a logit through the second block.
    model, params = turning_model(window=3, n_layers=2, scan_blocks=True)
    assert np.unique(np.sign(params["blocks"]["0"]["turns"])).tolist() == [-1, 1]
    assert_decodes_as_it_reads(model, params, {"inputs": random_tokens((3, T), V)})


def test_training_has_the_learned_turns_and_scoring_the_rounded_ones():
    model, params = turning_model()
    learned = params_of(np.random.default_rng(2).uniform(-1, 1, (V, H)))
    with_turns = lambda turns: {**params, "blocks": {**params["blocks"], "0": turns}}  # noqa: E731
    batch = {"inputs": random_tokens((B, T), V), "targets": random_tokens((B, T), V), "weights": np.ones((B, T))}
    apply = jax.jit(model.apply)
    logits = np.asarray(apply(with_turns(learned), batch), np.float64)
    assert_close(logits, apply(with_turns(turns.rounded(learned)), batch))
    sums_of = jax.jit(functools.partial(loss_and_gradient, model))
    trained, _, gradient = sums_of(with_turns(learned), batch, jax.random.key(0))
    of_targets = np.take_along_axis(logits, batch["targets"][..., None], axis=-1)[..., 0]
    scored = (np.log(np.exp(logits).sum(-1)) - of_targets).sum()
    assert abs(float(trained) - scored) > 1e-3
    assert (gradient["blocks"]["0"]["turns"] != 0).any()
