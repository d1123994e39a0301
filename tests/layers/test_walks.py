"""Positions and features of walks, against plain loops."""

import dataclasses
import functools
import math

import jax
import numpy as np
import pytest

from closeness import assert_close
from fxf.layers.mask import self_mask
from fxf.layers.positions import attention_positions
from fxf.layers.walks import (
    OF_PAIR,
    OF_SEPARATOR,
    OF_TOKEN,
    PLAIN,
    added,
    features,
    walk,
    walks_of_heads,
)
from fxf.models.transformer_lm import transformer_lm
from fxf.testing import assert_cached_equals_full, assert_causal
from helpers import random_params, random_tokens, small, twice

V, B, T = 4, 3, 11
OF_3_TOKENS = 3 * len(OF_TOKEN) + 3  # and of their pairs
M = len(OF_SEPARATOR) + OF_3_TOKENS
TURNED, RETURNED, REFLECTED, RETURNED_FAR, REFLECTED_FAR = range(1, 6)


def listed(n_walks):
    """Returns the first walks, each as the effects of some tokens and, under None, that of all others."""
    walks = [{0: effect, None: PLAIN} for effect in OF_SEPARATOR]
    for token in range(1, 9):
        walks += [{token: own, 0: of_separator, None: others} for own, of_separator, others in OF_TOKEN]
        of_token, of_lower, others = OF_PAIR
        walks += [{token: of_token, lower: of_lower, None: others} for lower in range(1, token)]
    return walks[:n_walks]


def looped(n_walks, tokens_BT):
    """Returns the states [B, M, T, 4] by plain loops over the lists of effects."""
    states = np.zeros((len(tokens_BT), n_walks, len(tokens_BT[0]), 4))
    for b, tokens in enumerate(tokens_BT):
        for m, of_tokens in enumerate(listed(n_walks)):
            place, direction, stride = 0, 1, 1
            for t, token in enumerate(np.asarray(tokens).tolist()):
                effect = of_tokens.get(token, of_tokens[None]) if t else PLAIN
                position = effect.keep * place + effect.step * direction * stride
                place = position + effect.shift * direction * stride
                direction, stride = direction * effect.turn, max(stride, effect.stride)
                states[b, m, t] = position, place, direction, stride
    return states


walked = jax.jit(functools.partial(walk, {}))


def start(n_walks, n_rows=B):
    return np.zeros((n_rows, n_walks, 4), np.float32)


def states_of(tokens, n_walks=M):
    return walked(np.array([tokens]), start(n_walks, 1))


@pytest.mark.parametrize("n_walks", [1, 20, M, 60])
def test_walks_are_those_of_plain_loops_also_in_parts_and_where_tokens_have_none_of_their_own(n_walks):
    tokens_BT, state = random_tokens((B, T), V), start(n_walks)
    whole = looped(n_walks, tokens_BT)
    np.testing.assert_array_equal(walked(tokens_BT, state), whole)
    for begin, end in ((0, 5), (5, T)):
        part = np.asarray(walked(tokens_BT[:, begin:end], state))
        np.testing.assert_array_equal(part, whole[:, :, begin:end])
        state = part[:, :, -1]


def test_features_are_those_of_their_definition_and_stay_within_one():
    position = np.array([-700, -3, 0, 1, 4, 998])
    states = np.zeros((1, 1, len(position), 4), np.float32)
    states[0, 0, :, 0], states[0, 0, :, 2] = position, [1, -1, 1, -1, 1, 1]
    expected = [
        [d, (p > 0) - (p < 0), p == 0, max(-1, min(1, p / 4)), (-1) ** p]
        + [f(2 * math.pi * (p % m) / m) for m in (3, 5) for f in (math.cos, math.sin)]
        for p, d in zip(position.tolist(), states[0, 0, :, 2].tolist(), strict=True)
    ]
    found = np.asarray(jax.jit(features)(states))[0, :, 0]
    assert_close(found, np.array(expected, float), largest=2 * math.pi)
    assert np.abs(found).max() <= 1


def test_embeddings_add_the_features_of_all_walks():
    states = looped(7, random_tokens((B, T), V)).astype(np.float32)
    kernel = np.random.default_rng(0).normal(size=(7, 9, 5)).astype(np.float32)
    found, of_states = jax.jit(lambda states: (added({"features": kernel}, states), features(states)))(states)
    expected = np.zeros((B, T, 5))
    for m in range(7):
        for z in range(9):
            expected += np.asarray(of_states, float)[:, :, m, z, None] * kernel[m, z]
    assert_close(found, expected, largest=np.abs(kernel).max() * 63)


@pytest.mark.parametrize(
    ("n_heads", "n_walks", "expected"),
    [
        (4, 32, [0, 1, 2, 3]),
        (9, 25, [0, 1, 2, 3, 4, 5, 6, 15, 7]),
        (13, 14, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 1]),
        (3, 2, [0, 1, 0]),
    ],
)
def test_heads_read_the_walks_of_token_0_and_then_one_kind_after_the_other(n_heads, n_walks, expected):
    assert walks_of_heads(n_heads, n_walks).tolist() == expected


def walking_model(**changes):
    config = dataclasses.replace(small(d_model=12), **{"positions": "walks", "n_walks": 15, **changes})
    model = transformer_lm(config, V)
    return model, random_params(model.spec, 3)


def test_cached_decoding_and_beams_walk_as_the_full_forward_does():
    # What the tokens of a prompt see reaches a logit through the second block.
    model, params = walking_model(window=3, n_layers=2, scan_blocks=True)
    batch = {"inputs": random_tokens((3, T), V)}
    assert_cached_equals_full(model, params, batch, capacities=[T + 2])
    assert_causal(model, params, twice(batch))


def test_a_query_sees_of_the_tokens_at_one_position_only_the_last_within_the_window():
    config = dataclasses.replace(small(d_model=12), positions="walks", window=3)
    tokens = [0, 1, 2, 3, 0, 1, 2]
    states = states_of(tokens, len(OF_SEPARATOR))
    positions_BHT = jax.jit(functools.partial(attention_positions, config))(np.arange(len(tokens))[None], states)
    bias = jax.jit(lambda positions_BHT: self_mask(config, positions_BHT, causal=True).bias)(positions_BHT)
    seen = np.asarray(bias)[0] > -np.inf
    for head, places in enumerate(np.asarray(positions_BHT)[0]):
        for query in range(len(tokens)):
            near = [key for key in range(query + 1) if abs(places[key] - places[query]) < 3]
            last = [key for key in near if places[key] not in places[key + 1 : query + 1]]
            assert np.flatnonzero(seen[head, query]).tolist() == last
    assert not seen[RETURNED, 5, 0] and seen[TURNED, 5, 4]
