"""Positions of a walk that tokens turn, against plain loops."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from closeness import assert_close
from fxf.errors import UserError
from fxf.layers.turns import rounded, turns_of, undecided, walk
from fxf.models.transformer_lm import transformer_lm
from fxf.testing import assert_cached_equals_full, assert_causal
from fxf.training.gradient import loss_and_gradient
from helpers import random_params, random_tokens, small, twice

V, H, B, T = 5, 3, 2, 9


walked = jax.jit(walk)


def params_of(turns_VH):
    return {"turns": np.asarray(turns_VH, np.float32) / 10}


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


def test_a_walk_is_that_of_plain_loops():
    turns_VH = np.random.default_rng(0).uniform(-1, 1, (V, H)).astype(np.float32)
    tokens_BT = random_tokens((B, T), V)
    start = np.zeros((B, H, 2), np.float32)
    expected = looped(turns_VH.astype(np.float64), tokens_BT)
    assert_close(walked(params_of(turns_VH), tokens_BT, start), expected, largest=T)


def test_a_walk_in_parts_is_the_whole_walk_bit_for_bit_where_turns_are_whole():
    turns_VH = np.random.default_rng(1).choice([-1.0, 1.0], (V, H))
    tokens_BT = random_tokens((B, T), V)
    params = rounded(params_of(turns_VH))
    state = np.zeros((B, H, 2), np.float32)
    whole = np.asarray(walked(params, tokens_BT, state))
    np.testing.assert_array_equal(whole, looped(turns_VH, tokens_BT))
    for t in range(T):
        state = np.asarray(walked(params, tokens_BT[:, t : t + 1], state))[:, :, 0]
        np.testing.assert_array_equal(state, whole[:, :, t])


def test_turns_stay_within_bounds_and_scoring_rounds_them():
    raw = np.array([[-2.0, 0.3, 0.0], [1.0, -0.2, 5.0]])
    np.testing.assert_array_equal(turns_of(params_of(raw)), np.clip(params_of(raw)["turns"] * np.float32(10), -1, 1))
    np.testing.assert_array_equal(turns_of(rounded(params_of(raw))), [[-1, 1, 1], [1, -1, 1]])
    gradient = jax.jit(jax.grad(lambda params: turns_of(params).sum()))(params_of(raw))
    np.testing.assert_array_equal(gradient["turns"], np.full(raw.shape, 10))


def test_a_penalty_moves_turns_to_one_or_minus_one_from_a_step_on():
    raw = np.array([[-2.0, 0.5, 0.0], [1.0, -0.2, 5.0]])
    config = small(d_model=12, positions="turns", turns_settle_at=7)
    of_the_others = 0.1 * ((1 - 0.5**2) ** 2 + 1 + (1 - 0.2**2) ** 2)
    at_step = jax.jit(jax.value_and_grad(lambda params, step: undecided(config, params, step)))
    penalty, gradient = at_step(params_of(raw), 7)
    assert_close(penalty, of_the_others, largest=1)
    assert np.sign(np.round(gradient["turns"], 6)).tolist() == [[0, -1, 0], [0, 1, 0]]
    assert at_step(params_of(raw), 6)[0] == 0
    assert undecided(dataclasses.replace(config, turns_settle_at=0), params_of(raw), 7) == 0


def turning_model(**changes):
    config = dataclasses.replace(small(d_model=12), **{"positions": "turns", **changes})
    model = transformer_lm(config, V)
    return model, random_params(model.spec, 3)


def test_cached_decoding_and_beams_walk_as_the_full_forward_does():
    # What the tokens of a prompt see reaches a logit through the second block.
    model, params = turning_model(window=3, n_layers=2, scan_blocks=True)
    assert np.unique(np.sign(params["embedding"]["positions"]["turns"])).tolist() == [-1, 1]
    batch = {"inputs": random_tokens((3, T), V)}
    assert_cached_equals_full(model, params, batch, capacities=[T + 2])
    assert_causal(model, params, twice(batch))


def test_training_has_the_learned_turns_and_scoring_the_rounded_ones():
    model, params = turning_model()
    embedding = params["embedding"] | {"positions": params_of(np.random.default_rng(2).uniform(-1, 1, (V, H)))}
    params, exact = params | {"embedding": embedding}, params | {"embedding": {**embedding}}
    exact["embedding"]["positions"] = rounded(embedding["positions"])
    batch = {"inputs": random_tokens((B, T), V), "targets": random_tokens((B, T), V), "weights": np.ones((B, T))}
    apply = jax.jit(model.apply)
    logits = np.asarray(apply(params, batch), np.float64)
    assert_close(logits, apply(exact, batch))
    trained, _, gradient = jax.jit(functools.partial(loss_and_gradient, model))(params, batch, jax.random.key(0))
    of_targets = np.take_along_axis(logits, batch["targets"][..., None], axis=-1)[..., 0]
    scored = (np.log(np.exp(logits).sum(-1)) - of_targets).sum()
    assert abs(float(trained) - scored) > 1e-3
    assert (gradient["embedding"]["positions"]["turns"] != 0).any()


def test_a_window_of_a_kernel_that_counts_tokens_is_refused():
    with pytest.raises(UserError, match=r"model\.window: model\.attention_implementation 'flash' counts"):
        turning_model(attention_implementation="flash", dtype="bfloat16", window=3)


def test_rows_of_several_documents_are_refused():
    model, params = turning_model()
    batch = {"inputs": random_tokens((B, T), V), "documents": np.zeros((B, T), np.int32)}
    with pytest.raises(UserError, match=r"documents: model\.positions 'turns' walks along whole rows"):
        jax.eval_shape(model.features, params, batch)
