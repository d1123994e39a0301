import itertools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from closeness import assert_close
from fxf.decoding.beam import beam_search
from fxf.decoding.blocking import repeating
from fxf.decoding.config import DecodeConfig
from fxf.decoding.sampling import sampling

N, V, U = 2, 3, 5
LOGITS_UNV = np.random.default_rng(0).normal(size=(U, N, V)).astype(np.float32)
CACHE = SimpleNamespace(select=lambda indices: CACHE)  # of a model whose logits depend on the step alone


def ngrams(tokens, size):
    return [tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)]


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_a_token_repeats_if_its_ngram_is_there(size):
    tokens = np.random.default_rng(size).integers(0, V, (40, U))
    lengths = np.arange(40) % (U + 1)
    expected = [
        [tuple([*row[:n], token][-size:]) in ngrams(row[:n].tolist(), size) for token in range(V)]
        for row, n in zip(tokens, lengths, strict=True)
    ]
    np.testing.assert_array_equal(jax.jit(repeating, static_argnums=(2, 3))(tokens, lengths, size, V), expected)


def decoded(method, width=1):
    """Returns the method's output for N prompts."""

    def run():
        state, _ = method.start(jnp.arange(N), jnp.full(N, method.max_tokens), CACHE)

        def choose(state, logits_NV):
            return method.choose(state, CACHE, jnp.repeat(logits_NV, width, axis=0))[0], None

        return method.output(jax.lax.scan(choose, state, LOGITS_UNV)[0])

    return jax.jit(run)()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_greedy_or_drawn_answer_ends_where_no_token_is_allowed(temperature):
    config = DecodeConfig(no_repeat_ngram=1, temperature=temperature)
    tokens, _ = decoded(sampling(U, -1, config, jax.random.key(0)))
    for answer in np.asarray(tokens)[:, 0].tolist():
        assert sorted(answer[:V]) == list(range(V)) and answer[V:] == [-1] * (U - V)


def test_the_hypotheses_of_a_beam_end_where_no_token_is_allowed():
    width = 7
    tokens, scores = decoded(beam_search(U, -1, DecodeConfig(no_repeat_ngram=1, beam_width=width)), width)
    log = LOGITS_UNV - np.log(np.exp(LOGITS_UNV.astype(np.float64)).sum(axis=-1, keepdims=True))
    for row in range(N):
        every = {
            answer: sum(log[t, row, token] for t, token in enumerate(answer)) / V
            for answer in itertools.permutations(range(V))
        }
        ranked = sorted(every, key=every.__getitem__, reverse=True)
        np.testing.assert_array_equal(tokens[row, : len(every)], [[*answer, *[-1] * (U - V)] for answer in ranked])
        assert_close(
            scores[row, : len(every)], np.array([every[answer] for answer in ranked]), operations=20, largest=5
        )
        assert np.isneginf(scores[row, len(every) :]).all() and len(every) < width


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_greedy_and_drawn_answers_repeat_no_ngram_and_greedy_ones_take_the_best_token_left(temperature):
    config = DecodeConfig(no_repeat_ngram=2, temperature=temperature)
    tokens, _ = decoded(sampling(U, -1, config, jax.random.key(0)))
    for row, answer in enumerate(np.asarray(tokens)[:, 0].tolist()):
        assert len(set(ngrams(answer, 2))) == U - 1
        expected = []
        for logits in LOGITS_UNV[:, row]:
            new = [t for t in range(V) if tuple([*expected, t][-2:]) not in ngrams(expected, 2)]
            expected.append(max(new, key=lambda t: logits[t]))
        assert temperature or answer == expected


def test_the_beam_finds_the_best_answers_without_a_repeated_ngram():
    width = V**U
    tokens, scores = decoded(beam_search(U, -1, DecodeConfig(no_repeat_ngram=2, beam_width=width)), width)
    log = LOGITS_UNV - np.log(np.exp(LOGITS_UNV.astype(np.float64)).sum(axis=-1, keepdims=True))
    every = [row for row in itertools.product(range(V), repeat=U) if len(set(ngrams(row, 2))) == U - 1]
    for row in range(N):
        ranked = sorted(every, key=lambda answer: -sum(log[t, row, token] for t, token in enumerate(answer)))
        expected = [sum(log[t, row, token] for t, token in enumerate(answer)) / U for answer in ranked]
        n = len(every)
        assert_close(scores[row, :n], np.array(expected), operations=20, largest=5)
        assert np.isneginf(scores[row, n:]).all() and n < width
        np.testing.assert_array_equal(tokens[row, 0], ranked[0])
