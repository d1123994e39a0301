"""Rules on answers, beside their definitions in plain Python."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from closeness import assert_close
from fxf.models.decode_config import DecodeConfig
from fxf.models.decoder import Decoder
from fxf.models.rules import Rules, Words
from helpers import random_params, small_model

V, END, OTHER_END, U = 5, 1, 4, 4
MODEL, _ = small_model(vocab_size=V, max_len=9, n_layers=1)
PROMPTS = {"tokens": np.array([[2, 3, 0], [3, 0, 0], [2, 2, 3]], np.int32), "lengths": np.array([2, 1, 3], np.int32)}


def drawn(rng):
    """Returns rules of which each holds in about half of the cases."""

    def perhaps(value, default):
        return value if rng.random() < 0.5 else default

    n_banned, lengths = rng.integers(1, 4), rng.integers(1, 4, 3)
    return {
        "no_repeat_ngram": perhaps(int(rng.integers(1, 4)), 0),
        "repetition_penalty": perhaps(float(rng.choice([0.5, 1.5, 3.0])), 1.0),
        "min_tokens": perhaps(int(rng.integers(1, U + 1)), 0),
        "banned": perhaps([tuple(rng.integers(0, V, n).tolist()) for n in lengths[:n_banned]], []),
        "prefix": perhaps(rng.integers(2, V - 1, rng.integers(1, 4)).tolist(), []),
    }


def config_of(rules, **keys):
    return DecodeConfig(
        **{name: rules[name] for name in ("no_repeat_ngram", "repetition_penalty", "min_tokens")}, **keys
    )


def penalized(rules, logits, prompt, answer):
    lower = np.where(logits > 0, logits / rules["repetition_penalty"], logits * rules["repetition_penalty"])
    return np.where([token in {*prompt, *answer} for token in range(V)], lower, logits)


def is_allowed(rules, answer, token, ends=(END, OTHER_END)):
    """Returns whether the rules allow a token after those of an answer."""
    new, size = [*answer, token], rules["no_repeat_ngram"]
    if len(answer) < len(rules["prefix"]):  # which is there whatever else holds
        return token == rules["prefix"][len(answer)]
    earlier = {tuple(answer[i : i + size]) for i in range(len(answer) - size + 1)}
    return (
        not (size and len(new) >= size and tuple(new[-size:]) in earlier)
        and not (len(answer) < rules["min_tokens"] and token in ends)
        and not any(tuple(new[-len(words) :]) == words for words in rules["banned"])
    )


def test_tokens_are_penalized_and_allowed_by_their_definitions():
    rng = np.random.default_rng(0)
    for _ in range(9):
        rules = drawn(rng)
        tokens, lengths = rng.integers(0, V, (6, U)), rng.integers(0, U, 6)
        logits, prompts = rng.normal(size=(6, V)).astype(np.float32), rng.integers(1, V, (3, 2))
        read = {"first": prompts[:, 0], "tokens": prompts[:, 1:], "lengths": np.ones(3, int)}
        of_jax = Rules(config_of(rules), jnp.array([END, OTHER_END]), Words(rules["banned"], rules["prefix"]), read)
        found = of_jax.allowed(of_jax.penalized(logits, tokens, lengths), tokens, lengths)
        for row, answer in enumerate(tokens[i, :n].tolist() for i, n in enumerate(lengths)):
            lower = penalized(rules, logits[row], prompts[row // 2].tolist(), answer)
            allowed = [is_allowed(rules, answer, token) for token in range(V)]
            assert_close(found[row], np.where(allowed, lower, -np.inf), operations=2, largest=4)


@functools.cache
def next_logits():
    """Returns params, and the logits after each prompt and answer, by whole sequences."""
    params = random_params(MODEL.spec, 3)
    table = {}
    for row, (tokens, n) in enumerate(zip(PROMPTS["tokens"].tolist(), PROMPTS["lengths"], strict=True)):
        answers = list(itertools.product(range(V), repeat=U - 1))
        inputs = np.array([[0, *tokens[:n], *answer] for answer in answers], np.int32)
        logits = np.asarray(jax.jit(MODEL.apply)(params, {"inputs": inputs}), np.float64)
        for answer, of_answer in zip(answers, logits, strict=True):
            table |= {(row, answer[:i]): of_answer[n + i] for i in range(U)}
    return params, table


def searched(rules, row, width):
    """Returns the W best (score, answer) of a prompt by a beam search over `next_logits` in plain Python."""
    prompt = PROMPTS["tokens"][row, : PROMPTS["lengths"][row]].tolist()
    live, found = [(0.0, ())], []
    for _ in range(U):
        candidates = []
        for log, answer in live:
            logits = penalized(rules, next_logits()[1][row, answer], prompt, answer)
            logs = log + logits - np.log(np.exp(logits).sum())
            candidates += [(logs[t], (*answer, t)) for t in range(V) if is_allowed(rules, [*answer], t)]
        if not candidates:
            break
        candidates = sorted(candidates, reverse=True)[: 2 * width]
        ended = [each for each in candidates[:width] if each[1][-1] in (END, OTHER_END)]
        found = sorted([*found, *((log / len(answer), answer) for log, answer in ended)], reverse=True)[:width]
        live = [each for each in candidates if each[1][-1] not in (END, OTHER_END)][:width]
        if len(found) == width:
            return found
    return sorted([*found, *((log / max(len(answer), 1), answer) for log, answer in live)], reverse=True)[:width]


def check(rules, width):
    params, _ = next_logits()
    method = config_of(rules, beam_width=width)
    words = Words(rules["banned"], rules["prefix"])
    decoder = Decoder(MODEL, (END, OTHER_END), config=method, words=words)
    tokens, scores = decoder(params, PROMPTS, U)
    for row in range(len(tokens)):
        expected = searched(rules, row, width)
        ended = [[END if token == OTHER_END else token for token in answer] for _, answer in expected]
        assert tokens[row, : len(ended)].tolist() == [[*answer, *[END] * (U - len(answer))] for answer in ended]
        if scores is not None:
            assert_close(scores[row, : len(ended)], np.array([s for s, _ in expected]), operations=60, largest=12)


CASES = [(drawn(np.random.default_rng(seed)), 1 + 2 * (seed % 2)) for seed in range(200)]


@pytest.mark.parametrize("case", CASES[:4], ids=range(4))
def test_greedy_decoding_and_a_beam_by_a_cache_keep_the_rules_as_whole_sequences_do(case):
    check(*case)


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES[4:], ids=range(4, 200))
def test_all_drawn_rules_hold_by_a_cache_as_by_whole_sequences(case):
    check(*case)
