"""Greedy decoding and beams, with rules on answers, against a search over whole sequences; frequencies of samples."""

import ast
import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from closeness import assert_close, largest_of
from fxf.layers.cache import Cache
from fxf.models import sampling
from fxf.models.beam import GROUP, largest
from fxf.models.decode_config import DecodeConfig
from fxf.models.decoder import Decoder
from fxf.models.encoder_decoder import EncoderDecoderConfig, encoder_decoder
from fxf.models.model import Model
from fxf.models.rules import Words
from fxf.models.speculative import Speculative
from helpers import marked, random_params, small, small_model, table

V, END, OTHER_END, U = 5, 1, 4, 4
LIMITS = np.array([4, 3, 4, 1], np.int32)  # new tokens per prompt, at most U
TOKENS = np.array([[2, 3, 0], [3, 0, 0], [2, 2, 3], [2, 4, 0]], np.int32)
PROMPTS = {"tokens": TOKENS, "lengths": np.array([2, 1, 3, 2], np.int32)}
SOURCE = {"source": np.array([[1, 2, 3], [4, 0, 2], [3, 3, 1], [2, 0, 0]], np.int32), "source_mask": np.tri(4, 3) > 0}


@functools.cache
def model_of(kind):
    """Returns a model and its prompts."""
    if kind == "decoder":
        keys = {"window": 3, "positions": "alibi", "n_kv_heads": 1, "attention_implementation": "chunked"}
        return small_model(vocab_size=V, max_len=9, n_layers=2, scan_blocks=True, **keys)[0], PROMPTS
    # Its memory is per row and thus reordered; the other's is shared by a prompt's hypotheses.
    keys = {"attention": "linear", "block": "pre_norm", "cross_norm": "source", "max_len": 9}
    return encoder_decoder(small(EncoderDecoderConfig, **keys), V), {**PROMPTS, **SOURCE}


@functools.cache
def forward_of(kind):
    return jax.jit(model_of(kind)[0].apply)


@functools.cache
def next_logits(kind, seed):
    """Returns params, and the logits after each prompt and answer, from whole sequences."""
    (model, prompts), table, forward = model_of(kind), {}, forward_of(kind)
    params = jax.tree.map(lambda w: 2 * np.asarray(w), random_params(model.spec, seed))
    params["final"]["bias"][END] += seed % 4 - 1  # answers end early or late
    answers = list(itertools.product(range(V), repeat=U - 1))
    for row, n in enumerate(prompts["lengths"]):
        inputs = np.zeros((len(answers), 1 + 3 + U - 1), np.int32)
        inputs[:, 1 : 1 + n], inputs[:, 1 + n : n + U] = prompts["tokens"][row, :n], answers
        rest = {name: np.repeat(prompts[name][row][None], len(answers), 0) for name in SOURCE if name in prompts}
        for answer, logits in zip(answers, np.asarray(forward(params, {"inputs": inputs, **rest})), strict=True):
            table |= {(row, answer[:i]): logits[n + i].astype(np.float64) for i in range(U)}
    return params, table


DEFAULTS = {"repetition_penalty": 1.0, "no_repeat_ngram": 0, "min_tokens": 0, "length_penalty": 1.0, "early_stop": True}


def is_allowed(rules, answer, token):
    """Returns whether the rules allow a token after those of an answer."""
    new, size, prefix = [*answer, token], rules["no_repeat_ngram"], rules.get("prefix", [])
    if len(answer) < len(prefix):  # always allowed
        return token == prefix[len(answer)]
    earlier = {tuple(answer[i : i + size]) for i in range(len(answer) - size + 1)}
    return (
        not (size and len(new) >= size and tuple(new[-size:]) in earlier)
        and not (len(answer) < rules["min_tokens"] and token in (END, OTHER_END))
        and not any(tuple(new[-len(words) :]) == words for words in rules.get("banned", []))
    )


def searched(rules, row, width, after):
    """Returns a prompt's W best (score, answer), by the documented rule, one hypothesis at a time."""
    prompt, penalty = PROMPTS["tokens"][row, : PROMPTS["lengths"][row]].tolist(), rules["repetition_penalty"]
    live, found, power, limit = [(0.0, ())], [], rules["length_penalty"], LIMITS[row]
    for n in range(1, limit + 1):
        candidates = []
        for log, answer in live:
            logits = after[row, answer]
            lower = np.where(logits > 0, logits / penalty, logits * penalty)
            logits = np.where([token in {*prompt, *answer, *rules["in_front"]} for token in range(V)], lower, logits)
            logs = log + logits - np.log(np.exp(logits).sum())
            candidates += [(logs[t], (*answer, t)) for t in range(V) if is_allowed(rules, [*answer], t)]
        if not candidates:
            break
        candidates.sort(reverse=True)
        ended = [each for each in candidates[:width] if each[1][-1] in (END, OTHER_END)]
        found = sorted([*found, *((log / n**power, answer) for log, answer in ended)], reverse=True)[:width]
        live = [each for each in candidates if each[1][-1] not in (END, OTHER_END)][:width]
        can_win = live and live[0][0] / limit**power > found[-1][0] if found else True
        if len(found) == width and (rules["early_stop"] or not can_win):
            return found
    return sorted([*found, *((log / len(answer) ** power, answer) for log, answer in live)], reverse=True)[:width]


def check(kind, width, n_seeds=1, drafted=False, **rules):
    model, prompts = model_of(kind)
    config = DecodeConfig(**{name: value for name, value in rules.items() if name in DEFAULTS}, beam_width=width)
    words = Words(rules.get("banned", []), rules.get("prefix", []), rules.get("begins", 0))
    decode = Decoder(model, (END, OTHER_END), config=config, words=words)
    if drafted:
        draft, drafting = small_model(vocab_size=V, max_len=9, seed=9)
        decode = Speculative((draft, drafting, 2), model, (END, OTHER_END), config=config, words=words)
    for seed, row in itertools.product(range(n_seeds), range(len(LIMITS))):
        params, after = next_logits(kind, seed)
        tokens, scores = decode(params, {**prompts, "limits": LIMITS}, U)
        expected = searched({**DEFAULTS, "in_front": [], **rules}, row, width, after)
        ended = [[END if token == OTHER_END else token for token in answer] for _, answer in expected]
        assert tokens[row, : len(ended)].tolist() == [[*answer, *[END] * (U - len(answer))] for answer in ended]
        if scores is not None:
            assert_close(scores[row, : len(ended)], np.array([s for s, _ in expected]), largest=12)
            assert np.isneginf(scores[row, len(ended) :]).all()


@pytest.mark.parametrize("case", marked("searches"))
def test_a_search_with_a_cache_equals_one_over_whole_sequences(case):
    check(**case, n_seeds=8)


def drawn(seed):
    """Returns a random case, with each rule in about half of the cases."""
    rng = np.random.default_rng(seed)
    rules = {
        "no_repeat_ngram": int(rng.integers(1, 4)),
        "repetition_penalty": float(rng.choice([0.5, 1.5, 3.0])),
        "min_tokens": int(rng.integers(1, U + 1)),
        "banned": [tuple(rng.integers(0, V, n).tolist()) for n in rng.integers(1, 4, 3)[: rng.integers(1, 4)]],
        "prefix": rng.integers(2, V - 1, rng.integers(1, 4)).tolist(),
    }
    return {name: value for name, value in rules.items() if rng.random() < 0.5} | {
        "width": 1 + 2 * (seed % 2),
        "drafted": seed % 4 == 2,
    }


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(200))
def test_random_rules_hold_with_a_cache_as_over_whole_sequences(seed):
    check("decoder", **drawn(seed))


def test_a_beam_without_early_stop_waits_for_a_hypothesis_that_wins_later():
    # After two steps two hypotheses have ended with -0.5 and -0.6; a live one has -1.9, but ends with -0.3.
    shares = np.array([[0.4, 0.35, 0.25], [0.06, 0.04, 0.9], *[[0.98, 0.01, 0.01]] * 10])

    def step(params, cache, tokens_R):
        logits_RV = jnp.log(shares)[cache.lengths]
        return logits_RV, dataclasses.replace(cache, lengths=cache.lengths + 1)

    model = Model({}, lambda *_: None, lambda *_: None, lambda *read: Cache({}, read[1]["lengths"]), step)
    prompts = {"tokens": np.zeros((1, 0), np.int32), "lengths": np.zeros(1, np.int32)}
    decode = Decoder(model, 2, config=DecodeConfig(beam_width=2, early_stop=False))
    tokens, scores = decode({}, prompts, 12)
    assert tokens[0, 0].tolist() == [0] * 12
    assert_close(scores[0, 0], np.log(shares[:, 0]).mean(), operations=20, largest=4)


@pytest.mark.parametrize(("vocab_size", "k"), [(5, 5), (7 * GROUP - 5, 3)])
def test_the_largest_elements_are_those_of_top_k_in_its_order_also_among_equals(vocab_size, k):
    rng = np.random.default_rng(vocab_size)
    few = rng.integers(0, 4, (9, 3, vocab_size)).astype(np.float32)
    few[:, :, rng.permutation(vocab_size)[: vocab_size - 2]] = -np.inf
    # All hypotheses of a prompt are equal, so their continuations tie in pairs.
    equal = np.repeat(rng.integers(0, 4, (9, 1, vocab_size)).astype(np.float32), 3, axis=1)

    @jax.jit
    def best(x, shift):
        shifted = x + shift[..., None]
        return shifted, jax.lax.top_k(shifted.reshape(9, -1), k), largest(x, shift, k)

    for x in (rng.normal(size=(9, 3, vocab_size)).astype(np.float32), equal, few):
        shift = np.repeat(rng.normal(size=(9, 1)).astype(np.float32), 3, axis=1)
        shift[:, 2] = -np.inf
        shifted, (expected, chosen), (found, row, token) = jax.device_get(best(x, shift))
        assert_close(found, expected, largest=largest_of(shifted))
        np.testing.assert_array_equal(row * vocab_size + token, chosen)


PROBABILITIES = np.array([0.1, 0.4, 0.05, 0.25, 0.2])
N_DRAWS = 5000


def test_tokens_are_drawn_with_their_probabilities_and_greedy_takes_the_most_probable():
    cases = [({}, "[0, 1, 0, 0, 0]"), *table("probabilities of tokens")]

    @jax.jit
    def draw(logits, key):
        keys = jax.random.split(key, N_DRAWS)
        return [sampling.draw(DecodeConfig(**settings), logits, keys) for settings, _ in cases]

    drawn = draw(np.broadcast_to(np.log(PROBABILITIES).astype(np.float32), (N_DRAWS, 5)), jax.random.key(0))
    for (settings, expected), tokens in zip(cases, drawn, strict=True):
        shares = np.bincount(tokens, minlength=5) / N_DRAWS
        atol = 0.025 if settings else 0
        np.testing.assert_allclose(shares, ast.literal_eval(expected), rtol=0, atol=atol, err_msg=str(settings))


def test_top_p_keeps_the_smallest_set_also_if_it_has_exactly_that_probability():
    logits = np.log(np.array([[0.5, 0.25, 0.125, 0.125]], np.float32))
    configs = [DecodeConfig(temperature=1.0, top_p=top_p) for top_p in (0.5, 0.75, 0.76)]
    kept = jax.jit(lambda logits: [jnp.isfinite(sampling.restrict(config, logits)).sum() for config in configs])(logits)
    assert list(map(int, kept)) == [1, 2, 4]
