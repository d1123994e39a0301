"""Positions from walks, fixed or turned by tokens, against plain loops; and what a query sees of their tapes."""

import functools
import math

import jax
import numpy as np
import pytest

from closeness import assert_close
from fxf.layers.layer import Context, Places
from fxf.runs.guests import load
from fxf.testing import assert_cached_equals_full, assert_causal, assert_padding_unread
from helpers import loss_and_gradient, random_params, random_tokens, twice
from small_runs import ROOT

walks = load(ROOT / "configs/studies/walks.py")
V, B, T = 4, 3, 12
TURNED, RETURNED = 1, 2
SIZES = {"n_layers": 1, "d_model": 12, "d_ff": 11, "n_heads": 3, "max_len": 150, "n_walks": 15}

walked = jax.jit(walks.walk)


def listed(n_walks):
    """Returns the first walks, each as a dict from tokens to effects, with None for all other tokens."""
    found = [{0: effect, None: walks.PLAIN} for effect in walks.OF_SEPARATOR]
    for token in range(1, 9):
        found += [{token: own, 0: of_separator, None: others} for own, of_separator, others in walks.OF_TOKEN]
        of_token, of_lower, others = walks.OF_PAIR
        found += [{token: of_token, lower: of_lower, None: others} for lower in range(1, token)]
    return found[:n_walks]


def looped(n_walks, tokens_BT):
    """Returns the states [B, M, T, 4] by plain loops over the lists of effects."""
    states = np.zeros((len(tokens_BT), n_walks, len(tokens_BT[0]), 4))
    for b, tokens in enumerate(tokens_BT):
        for m, of_tokens in enumerate(listed(n_walks)):
            place, direction, stride = 0, 1, 1
            for t, token in enumerate(np.asarray(tokens).tolist()):
                effect = of_tokens.get(token, of_tokens[None]) if t else walks.PLAIN
                position = effect.keep * place + effect.step * direction * stride
                place = position + effect.shift * direction * stride
                direction, stride = direction * effect.turn, max(stride, effect.stride)
                states[b, m, t] = position, place, direction, stride
    return states


def walking_model(**changes):
    model = walks.walking(walks.WalkingConfig(**{**SIZES, **changes}), V)
    return model, random_params(model.spec, 3)


@pytest.mark.parametrize("n_walks", [1, 20, 60])
def test_walks_are_those_of_plain_loops_also_in_parts_and_where_tokens_have_none_of_their_own(n_walks):
    tokens_BT, state = random_tokens((B, T), V), np.zeros((B, n_walks, 4), np.float32)
    whole = looped(n_walks, tokens_BT)
    np.testing.assert_array_equal(walked(tokens_BT, state), whole)
    for begin, end in ((0, T // 2), (T // 2, T)):
        part = np.asarray(walked(tokens_BT[:, begin:end], state))
        np.testing.assert_array_equal(part, whole[:, :, begin:end])
        state = part[:, :, -1]


def test_features_are_those_of_their_definition():
    position = np.array([-700, -3, 0, 1, 4, 998])
    states = np.zeros((1, 1, len(position), 4), np.float32)
    states[0, 0, :, 0], states[0, 0, :, 2] = position, [1, -1, 1, -1, 1, 1]
    expected = [
        [d, (p > 0) - (p < 0), p == 0, max(-1, min(1, p / 4)), (-1) ** p]
        + [f(2 * math.pi * (p % m) / m) for m in (3, 5) for f in (math.cos, math.sin)]
        for p, d in zip(position.tolist(), states[0, 0, :, 2].tolist(), strict=True)
    ]
    found = np.asarray(jax.jit(walks.features)(states))[0, :, 0]
    assert_close(found, np.array(expected, float), largest=2 * math.pi)


def test_the_stream_gets_the_features_of_all_walks_and_heads_the_positions_of_some():
    layer, tokens_BT = walks.Walks(d_model=5, n_heads=4, vocab_size=V, n_walks=7), random_tokens((B, T), V)
    params, x_BTD = random_params(layer.spec()), np.random.default_rng(1).normal(size=(B, T, 5)).astype(np.float32)
    context = Context(Places(np.arange(T)[None]), tokens_BT)
    y_BTD, context = jax.jit(layer.apply)(params, x_BTD, context)
    states = looped(7, tokens_BT)
    features_BTMZ = np.asarray(jax.jit(walks.features)(states.astype(np.float32)), float)
    added_BTD = np.einsum("BTMZ,MZD->BTD", features_BTMZ, np.asarray(params["features"], float))
    assert_close(y_BTD, x_BTD + added_BTD, largest=63)
    np.testing.assert_array_equal(context.carry["token_positions"], states[:, :4, :, 0].transpose(0, 2, 1))


def test_a_query_sees_only_the_last_token_at_each_position_within_the_window():
    tokens = np.array([[0, 1, 2, 3, 0, 1, 2]])
    n, n_heads = tokens.shape[1], len(walks.OF_SEPARATOR)
    tape = walks.Tape(walks.WalkingConfig(d_model=12, n_heads=n_heads, window=3, positions="none"))
    positions_BTM = looped(n_heads, tokens)[..., 0].transpose(0, 2, 1).astype(np.float32)
    whole = jax.device_put(Places(positions_BTM, np.arange(n)[None]))
    at_once = np.asarray(jax.jit(functools.partial(tape.seen, whole))(whole))[0]
    one_by_one = jax.jit(lambda t: tape.seen(whole.pick(lambda x: x[:, t][:, None]), whole))
    for head, places in enumerate(positions_BTM[0].T.tolist()):
        for query in range(n):
            near = [key for key in range(query + 1) if abs(places[key] - places[query]) < 3]
            last = [key for key in near if places[key] not in places[key + 1 : query + 1]]
            assert np.flatnonzero(at_once[head, query]).tolist() == last
            assert np.flatnonzero(one_by_one(query)[0, head, 0]).tolist() == last
    assert not at_once[RETURNED, 5, 0] and at_once[TURNED, 5, 4]


turns = load(ROOT / "configs/studies/turns.py")
H = 3
TURNING = {"n_layers": 1, "d_model": 12, "d_ff": 11, "n_heads": H, "max_len": 150}

turned = jax.jit(turns.walk)


def params_of(turns_VH):
    return {"turns": np.asarray(turns_VH, np.float32) / 10}


def turning_model(**changes):
    model = turns.turning(turns.TurningConfig(**{**TURNING, **changes}), V)
    return model, random_params(model.spec, 3)


def turned_by_loops(turns_VH, tokens_BT):
    """Returns positions and the directions after each token, [B, H, T, 2], by plain loops."""
    states = np.zeros((len(tokens_BT), turns_VH.shape[1], len(tokens_BT[0]), 2))
    for b, tokens in enumerate(tokens_BT):
        for h in range(turns_VH.shape[1]):
            position, direction = 0.0, 1.0
            for t, token in enumerate(tokens):
                position += direction
                direction *= turns_VH[token, h] if t else 1
                states[b, h, t] = position, direction
    return states


def test_a_walk_equals_plain_loops_and_bit_for_bit_in_parts_if_turns_are_integers():
    tokens_BT, state = random_tokens((B, T), V), np.zeros((B, H, 2), np.float32)
    rng = np.random.default_rng(0)
    turns_VH = rng.uniform(-1, 1, (V, H)).astype(np.float32)
    assert_close(turned(turns_VH, tokens_BT, state), turned_by_loops(turns_VH.astype(np.float64), tokens_BT), largest=T)
    turns_VH = rng.choice([-1.0, 1.0], (V, H)).astype(np.float32)
    whole = turned_by_loops(turns_VH, tokens_BT)
    np.testing.assert_array_equal(turned(turns_VH, tokens_BT, state), whole)
    for t in range(T):
        state = np.asarray(turned(turns_VH, tokens_BT[:, t : t + 1], state))[:, :, 0]
        np.testing.assert_array_equal(state, whole[:, :, t])


def test_turns_stay_within_bounds_and_scoring_rounds_them():
    raw = np.array([[-2.0, 0.3, 0.0], [1.0, -0.2, 5.0]])
    bounded = np.clip(params_of(raw)["turns"] * np.float32(10), -1, 1)
    np.testing.assert_array_equal(turns.turns_of(params_of(raw)), bounded)
    np.testing.assert_array_equal(turns.turns_of(turns.rounded(params_of(raw))), [[-1, 1, 1], [1, -1, 1]])
    gradient = jax.jit(jax.grad(lambda params: turns.turns_of(params).sum()))(params_of(raw))
    np.testing.assert_array_equal(gradient["turns"], np.full(raw.shape, 10))


@pytest.mark.thorough
@pytest.mark.parametrize("model_of", [walking_model, turning_model])
def test_cached_decoding_and_beams_walk_as_the_full_forward_does(model_of):
    # With two blocks, what prompt tokens see reaches the logits.
    model, params = model_of(window=3, n_layers=2, scan_blocks=True)
    assert model_of is walking_model or {*np.sign(params["blocks"]["0"]["turns"]).flat} == {-1, 1}
    batch = {"inputs": random_tokens((3, T), V)}
    assert_cached_equals_full(model, params, batch, capacities=[T + 2])
    assert_causal(model, params, twice(batch))
    is_token_BT = np.arange(T)[None] < np.array([[T], [6], [1]])
    assert_padding_unread(model, params, twice({**batch, "input_mask": is_token_BT}))


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
    assert abs(float(trained) - scored) > 1e-3 and (gradient["blocks"]["0"]["turns"] != 0).any()
