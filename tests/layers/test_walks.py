"""Positions and features of walks, against plain loops."""

import dataclasses
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from closeness import assert_close
from fxf.errors import UserError
from fxf.layers.walks import OF_SEPARATOR, OF_TOKEN, added, count_walks, features, walk, walks_of_heads
from fxf.models.encoder_decoder import EncoderDecoderConfig, encoder_decoder
from fxf.models.transformer_lm import transformer_lm
from fxf.testing import assert_consistent
from helpers import random_params, random_tokens, small

V, B, T = 4, 3, 11
M = len(OF_SEPARATOR) + len(OF_TOKEN) * (V - 1)
TURNED, RETURNED, REFLECTED, RETURNED_FAR, REFLECTED_FAR = range(1, 6)


def looped(n_walks, tokens_BT):
    """Returns the states [B, M, T, 4] by plain loops over the lists of effects."""
    states = np.zeros((len(tokens_BT), n_walks, len(tokens_BT[0]), 4))
    for b, tokens in enumerate(tokens_BT):
        for m in range(n_walks):
            place, direction, stride = 0, 1, 1
            for t, token in enumerate(tokens):
                if t == 0:
                    step, keep, turn, longer = 1, 1, 1, 1
                elif m < len(OF_SEPARATOR):
                    step, keep, turn, longer = OF_SEPARATOR[m] if token == 0 else (1, 1, 1, 1)
                else:
                    number, kind = divmod(m - len(OF_SEPARATOR), len(OF_TOKEN))
                    own, of_separator, of_others = OF_TOKEN[kind]
                    step, keep, turn, longer = own if token == number + 1 else of_separator if token == 0 else of_others
                position = place + step * direction * stride
                place, direction, stride = keep * position, direction * turn, max(stride, longer)
                states[b, m, t] = position, place, direction, stride
    return states


def states_of(tokens, n_walks=M):
    return walk({}, np.array([tokens]), jnp.zeros((1, n_walks, 4)))


@pytest.mark.parametrize("n_walks", [1, 4, 6, 9, M])
def test_walks_are_those_of_plain_loops_also_where_tokens_have_none_of_their_own(n_walks):
    tokens_BT = random_tokens((B, T), V)
    found = walk({}, tokens_BT, jnp.zeros((B, n_walks, 4)))
    np.testing.assert_array_equal(found, looped(n_walks, tokens_BT))


def test_walks_in_parts_are_the_whole_walks_bit_for_bit():
    tokens_BT = random_tokens((B, T), V)
    whole = walk({}, tokens_BT, jnp.zeros((B, M, 4)))
    state = jnp.zeros((B, M, 4))
    for start, end in ((0, 1), (1, 4), (4, 5), (5, T)):
        part = walk({}, tokens_BT[:, start:end], state)
        np.testing.assert_array_equal(part, whole[:, :, start:end])
        state = part[:, :, -1]


def test_a_copy_a_reversal_and_a_second_copy_pass_the_positions_of_the_prompt():
    prompt = [3, 1, 2, 2, 1]
    positions = np.asarray(states_of([0, *prompt, 0, *prompt, *prompt]))[0, :, :, 0]
    of_prompt, first, second = positions[:, 1:6], positions[:, 7:12], positions[:, 12:]
    np.testing.assert_array_equal(first[RETURNED], of_prompt[RETURNED] - 1)
    np.testing.assert_array_equal(first[TURNED], of_prompt[TURNED][::-1])
    np.testing.assert_array_equal(second[REFLECTED], of_prompt[REFLECTED] - 3)
    np.testing.assert_array_equal(first[RETURNED_FAR], 2 * (of_prompt[RETURNED_FAR] - 1))
    np.testing.assert_array_equal(np.diff(positions[REFLECTED_FAR, 7:]), 2)


def test_features_are_those_of_their_definition_and_stay_within_one():
    position = np.array([-700, -3, 0, 1, 4, 998])
    states = np.zeros((1, 1, len(position), 4), np.float32)
    states[0, 0, :, 0], states[0, 0, :, 2] = position, [1, -1, 1, -1, 1, 1]
    expected = [
        [d, (p > 0) - (p < 0), p == 0, max(-1, min(1, p / 4)), (-1) ** p]
        + [f(2 * math.pi * (p % m) / m) for m in (3, 5) for f in (math.cos, math.sin)]
        for p, d in zip(position.tolist(), states[0, 0, :, 2].tolist(), strict=True)
    ]
    found = np.asarray(features(states))[0, :, 0]
    assert_close(found, np.array(expected, float), largest=2 * math.pi)
    assert np.abs(found).max() <= 1


def test_embeddings_add_the_features_of_all_walks():
    states = walk({}, random_tokens((B, T), V), jnp.zeros((B, 7, 4)))
    kernel = np.asarray(jax.random.normal(jax.random.key(0), (7, 9, 5)))
    expected = np.zeros((B, T, 5))
    for m in range(7):
        for z in range(9):
            expected += np.asarray(features(states), float)[:, :, m, z, None] * kernel[m, z]
    assert_close(added({"features": kernel}, states), expected, largest=np.abs(kernel).max() * 63)


@pytest.mark.parametrize(
    ("n_heads", "n_walks", "expected"),
    [
        (4, 32, [0, 1, 2, 3]),
        (9, 22, [0, 1, 2, 3, 4, 5, 6, 14, 7]),
        (12, 14, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]),
        (3, 2, [0, 1, 0]),
    ],
)
def test_heads_read_the_walks_of_token_0_and_then_one_kind_after_the_other(n_heads, n_walks, expected):
    assert walks_of_heads(n_heads, n_walks).tolist() == expected


def test_tokens_have_no_more_walks_than_there_are_kinds():
    config = small(d_model=12, positions="walks")
    assert [count_walks(config, vocab_size) for vocab_size in (1, 2, 4, 5, 9)] == [6, 14, 30, 32, 32]


def walking_model(**changes):
    config = dataclasses.replace(small(d_model=12), **{"positions": "walks", "n_walks": 15, **changes})
    model = transformer_lm(config, V)
    return model, random_params(model.spec, 3)


@pytest.mark.parametrize("window", [0, 3])
def test_cached_decoding_and_beams_walk_as_the_full_forward_does(window):
    model, params = walking_model(window=window)
    assert_consistent(model, params, {"inputs": random_tokens((3, T), V)})


def test_both_sides_of_an_encoder_decoder_walk():
    config = EncoderDecoderConfig(
        n_layers=1, d_model=8, d_ff=8, n_heads=2, max_len=20, positions="walks", embeddings="shared"
    )
    model = encoder_decoder(config, V)
    source = random_tokens((3, 7), V)
    batch = {"inputs": random_tokens((3, 6), V), "source": source, "source_mask": np.ones(source.shape, bool)}
    assert_consistent(model, random_params(model.spec, 1), batch)


def test_each_walk_reaches_the_logits():
    model, params = walking_model()
    batch = {"inputs": random_tokens((B, T), V)}
    kernel = params["embedding"]["positions"]["features"]
    gradient = jax.grad(
        lambda kernel: jnp.square(
            model.apply(
                params | {"embedding": params["embedding"] | {"positions": {"features": kernel}}},
                batch,
            )
        ).sum()
    )(kernel)
    assert (np.abs(gradient).max(axis=(1, 2)) > 0).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"positions": "rotary", "n_walks": 3},
            "model.n_walks: model.positions 'rotary' does not read it; leave it at 32",
        ),
        ({"position_range": 40}, "model.position_range: model.positions 'walks' does not read it"),
        ({"turns_settle_at": 4}, "model.turns_settle_at: model.positions 'walks' does not read it"),
    ],
)
def test_what_walks_do_not_go_with_is_refused(changes, message):
    with pytest.raises(UserError, match=re.escape(message)):
        walking_model(**{"n_walks": 32, **changes})
