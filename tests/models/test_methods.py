"""Methods with a model whose logits depend on the step and the prompt alone, beside all answers there are."""

import dataclasses
import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from closeness import assert_close
from fxf.layers.cache import Cache
from fxf.models.decode_config import DecodeConfig
from fxf.models.decoder import Decoder
from fxf.models.model import Model

N, V, U = 2, 3, 5
LOGITS_UNV = np.random.default_rng(0).normal(size=(U, N, V)).astype(np.float32)


def decoded(config, logits_UNV=LOGITS_UNV, end_token=-1):
    """Returns the tokens and scores of N prompts from their logits at each step."""

    def prefill(params, batch, length):
        return Cache(batch["row"], batch["lengths"])

    def step(params, cache, tokens_R):
        next_one = dataclasses.replace(cache, lengths=cache.lengths + 1)
        return jnp.asarray(logits_UNV)[cache.lengths, cache.layers], next_one

    max_tokens, n_prompts, _ = logits_UNV.shape
    rows = np.arange(n_prompts, dtype=np.int32)
    prompts = {"tokens": np.zeros((n_prompts, 0), np.int32), "lengths": 0 * rows, "row": rows}
    model = Model({}, lambda *_: None, lambda *_: None, prefill, step)
    return Decoder(model, end_token, config=config)({}, prompts, max_tokens)


def ngrams(tokens, size):
    return [tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)]


@pytest.mark.parametrize(("size", "length", "width"), [(1, V, 7), (2, U, V**U)])
def test_a_beam_finds_all_answers_without_a_repeated_ngram_also_where_no_token_is_left(size, length, width):
    tokens, scores = decoded(DecodeConfig(no_repeat_ngram=size, beam_width=width))
    log = LOGITS_UNV - np.log(np.exp(LOGITS_UNV.astype(np.float64)).sum(axis=-1, keepdims=True))
    answers = itertools.product(range(V), repeat=length)
    every = [answer for answer in answers if len(set(ngrams(answer, size))) == length - size + 1]
    n = len(every)
    for row in range(N):
        score = {a: sum(log[t, row, token] for t, token in enumerate(a)) / length for a in every}
        ranked = sorted(every, key=score.__getitem__, reverse=True)
        assert_close(scores[row, :n], np.array([score[a] for a in ranked]), operations=20, largest=5)
        np.testing.assert_array_equal(tokens[row, :n], [[*a, *[-1] * (U - length)] for a in ranked])
        assert np.isneginf(scores[row, n:]).all() and n < width


@pytest.mark.parametrize(("early_stop", "best"), [(True, [0, 2]), (False, [0] * 12)])
def test_a_beam_without_early_stop_waits_for_a_hypothesis_that_is_poor_now_and_wins_by_its_length(early_stop, best):
    # After two steps two hypotheses have ended with -0.5 and -0.6; a live one has -1.9, but -0.3 at last.
    shares = np.array([[0.4, 0.35, 0.25], [0.06, 0.04, 0.9], *[[0.98, 0.01, 0.01]] * 10])
    tokens, scores = decoded(DecodeConfig(beam_width=2, early_stop=early_stop), np.log(shares[:, None]), end_token=2)
    assert tokens[0, 0].tolist() == best + [2] * (12 - len(best))
    expected = np.log(shares[range(len(best)), best]).mean()
    assert_close(scores[0, 0], expected, operations=20, largest=4)


@pytest.mark.parametrize("config", [DecodeConfig(), DecodeConfig(beam_width=2)], ids=["greedy", "beam"])
def test_any_of_several_end_tokens_ends_an_answer_and_is_read_as_the_first(config):
    logits_UNV = 9 * np.eye(4, dtype=np.float32)[[[0, 3], [2, 3], [3, 1], [0, 0]]]  # of two prompts
    tokens, _ = decoded(config, logits_UNV, end_token=(1, 2))
    assert tokens[:, 0].tolist() == [[0, 1, 1, 1], [3, 3, 1, 1]]
