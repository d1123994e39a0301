import dataclasses
import functools
import itertools

import jax
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from closeness import assert_close, bound, largest_of
from fxf.base.weights import map_weights
from fxf.models.beam import GROUP, largest
from fxf.models.decode_config import DecodeConfig
from fxf.models.decoder import Decoder
from fxf.models.encoder_decoder import EncoderDecoderConfig, encoder_decoder
from fxf.models.transformer_lm import TransformerLMConfig, transformer_lm

END = 1
N_PROMPTS, LONGEST, N_SOURCE = 3, 2, 4  # of every batch, so that programs compile once a search
SIZES = {"n_layers": 1, "d_model": 6, "d_ff": 5, "n_heads": 2, "max_len": 8}
LENGTH_PENALTIES = (0.0, 0.6, 1.0, 2.5)


@dataclasses.dataclass(frozen=True)
class Case:
    """A search whose program compiles once, whatever the params, the prompts and the length penalty."""

    kind: str
    vocab_size: int
    max_tokens: int
    width: int
    early_stop: bool = True


@functools.cache
def model_of(kind, vocab_size):
    config_class, build = {
        "transformer_lm": (TransformerLMConfig, transformer_lm),
        "encoder_decoder": (EncoderDecoderConfig, encoder_decoder),
        # Its memory is by row, and so reordered, where that of the others is shared by a prompt's hypotheses.
        "linear_attention": (functools.partial(EncoderDecoderConfig, attention="linear"), encoder_decoder),
    }[kind]
    return build(config_class(**SIZES), vocab_size)


def params_of(case, seed, end_bias=0.0):
    """Weights that tell tokens well apart; `end_bias` makes hypotheses end sooner or later."""
    rng = np.random.default_rng(seed)
    model = model_of(case.kind, case.vocab_size)
    params = map_weights(lambda _, w: rng.uniform(-1, 1, w.shape).astype(np.float32), model.spec)
    params["final"]["bias"][END] += end_bias
    return params


def prompts_of(case, lengths, seed):
    rng = np.random.default_rng(seed)
    prompts = {
        "tokens": rng.integers(0, case.vocab_size, (len(lengths), LONGEST)).astype(np.int32),
        "lengths": np.array(lengths, np.int32),
    }
    if case.kind != "transformer_lm":
        prompts["source"] = rng.integers(0, case.vocab_size, (len(lengths), N_SOURCE)).astype(np.int32)
        source_lengths = rng.integers(1, N_SOURCE + 1, (len(lengths), 1))
        prompts["source_mask"] = np.arange(N_SOURCE)[None] < source_lengths
    return prompts


@functools.cache
def compiled_search(case):
    @jax.jit
    def search(params, prompts, length_penalty):
        config = dataclasses.replace(
            DecodeConfig(beam_width=case.width), length_penalty=length_penalty, early_stop=case.early_stop
        )
        decoder = Decoder(model_of(case.kind, case.vocab_size), END, config=config)
        return decoder.search(params, prompts, decoder.key, max_tokens=case.max_tokens)

    return search


def search(case, params, prompts, length_penalty=1.0):
    return jax.device_get(compiled_search(case)(params, prompts, np.float32(length_penalty)))


@functools.cache
def compiled_log_softmax(kind, vocab_size):
    model = model_of(kind, vocab_size)
    return jax.jit(lambda params, batch: jax.nn.log_softmax(model.apply(params, batch)))


class NextLog(dict):
    """{tokens after a prompt: the next token's log-probabilities}, and the largest magnitude among them."""

    def __init__(self, values, largest):
        super().__init__(values)
        self.largest = largest


def next_log_probabilities(case, params, prompts, row):
    """Returns the log-probabilities by full forward passes, without a cache, of all continuations at once."""
    continuations = list(itertools.product(range(case.vocab_size), repeat=case.max_tokens - 1))
    n = prompts["lengths"][row]
    inputs = np.zeros((len(continuations), 1 + LONGEST + case.max_tokens - 1), np.int32)
    inputs[:, 1 : 1 + n] = prompts["tokens"][row, :n]
    inputs[:, 1 + n : n + case.max_tokens] = continuations
    batch = {"inputs": inputs}
    for name in {"source", "source_mask"} & prompts.keys():
        batch[name] = np.repeat(prompts[name][row][None], len(continuations), axis=0)
    log_probabilities = compiled_log_softmax(case.kind, case.vocab_size)(params, batch)
    log_probabilities = np.asarray(log_probabilities, np.float64)[:, n : n + case.max_tokens]
    rows = zip(continuations, log_probabilities.tolist(), strict=True)
    values = {continuation[:i]: logs[i] for continuation, logs in rows for i in range(case.max_tokens)}
    return NextLog(values, largest_of(log_probabilities))


def ranked(scored, n, next_log):
    """Returns the n best of [(score, tokens)], the best first; gives a case up whose ranks depend on rounding."""
    first, apart = sorted(scored, reverse=True)[: n + 1], rounding(next_log)
    assume(all(a - b > apart for (a, _), (b, _) in itertools.pairwise(first)))
    return first[:n]


def rounding(next_log):
    """Returns how far apart two computations of a score may be, of which the log-probabilities are the terms."""
    return bound(next_log.largest)


def plain_search(case, next_log, length_penalty):
    """The documented rule, one hypothesis at a time: [(score, tokens)], the best first."""
    live, done = [(0.0, ())], []
    for n in range(1, case.max_tokens + 1):
        continued = [
            (log + next_log[tokens][token], (*tokens, token))
            for log, tokens in live
            for token in range(case.vocab_size)
        ]
        looked_at = ranked(continued, 2 * case.width, next_log)
        done += [(log / n**length_penalty, t) for log, t in looked_at[: case.width] if t[-1] == END]
        done = ranked(done, case.width, next_log)
        live = [(log, tokens) for log, tokens in looked_at if tokens[-1] != END][: case.width]
        if len(done) == case.width:
            best_possible = live[0][0] / case.max_tokens**length_penalty
            assume(abs(done[-1][0] - best_possible) > rounding(next_log))
            if case.early_stop or done[-1][0] >= best_possible:
                return done
    done += [(log / case.max_tokens**length_penalty, tokens) for log, tokens in live]
    return ranked(done, case.width, next_log)


def exhaustive_search(case, next_log, length_penalty):
    """Every sequence that ends, or that is as long as allowed: [(score, tokens)], the best first."""
    found = []
    for n in range(1, case.max_tokens + 1):
        for tokens in itertools.product(range(case.vocab_size), repeat=n):
            if END not in tokens[:-1] and (tokens[-1] == END or n == case.max_tokens):
                found.append((score(next_log, tokens, length_penalty), tokens))
    return ranked(found, len(found), next_log)


def score(next_log, tokens, length_penalty):
    return sum(next_log[tokens[:i]][token] for i, token in enumerate(tokens)) / len(tokens) ** length_penalty


def assert_found(case, tokens, scores, expected, next_log):
    """One prompt's tokens and scores are those of `expected`, and beyond them there is nothing."""
    assert tokens.shape == (case.width, case.max_tokens)
    padded = [[*found, *[END] * (case.max_tokens - len(found))] for _, found in expected]
    np.testing.assert_array_equal(tokens[: len(expected)], padded)
    assert_close(scores[: len(expected)], [score for score, _ in expected], largest=next_log.largest)
    assert (scores[len(expected) :] == -np.inf).all()


problems = given(
    seed=st.integers(0, 999),
    lengths=st.lists(st.integers(0, LONGEST), min_size=N_PROMPTS, max_size=N_PROMPTS),
    end_bias=st.sampled_from([-2.0, 0.0, 2.0]),
    length_penalty=st.sampled_from(LENGTH_PENALTIES),
)


@pytest.mark.parametrize(
    "case",
    [
        Case("transformer_lm", vocab_size=4, max_tokens=5, width=3, early_stop=False),
        Case("linear_attention", vocab_size=4, max_tokens=4, width=3),  # an encoder-decoder
        pytest.param(Case("encoder_decoder", vocab_size=4, max_tokens=5, width=5), marks=pytest.mark.thorough),
    ],
    ids=str,
)
@problems
def test_beam_search_equals_a_plain_one(case, seed, lengths, end_bias, length_penalty):
    params, prompts = params_of(case, seed, end_bias), prompts_of(case, lengths, seed)
    found = search(case, params, prompts, length_penalty)
    for row, (tokens, scores) in enumerate(zip(*found, strict=True)):
        next_log = next_log_probabilities(case, params, prompts, row)
        assert_found(case, tokens, scores, plain_search(case, next_log, length_penalty), next_log)


@problems
def test_a_beam_as_wide_as_all_sequences_searches_exhaustively(seed, lengths, end_bias, length_penalty):
    case = Case("transformer_lm", vocab_size=3, max_tokens=4, width=33, early_stop=False)  # 31 sequences in all
    params, prompts = params_of(case, seed, end_bias), prompts_of(case, lengths, seed)
    found = search(case, params, prompts, length_penalty)
    for row, (tokens, scores) in enumerate(zip(*found, strict=True)):
        next_log = next_log_probabilities(case, params, prompts, row)
        assert_found(case, tokens, scores, exhaustive_search(case, next_log, length_penalty), next_log)


@pytest.mark.parametrize(
    ("vocab_size", "k"), [(5, 5), (3 * GROUP, 1), (3 * GROUP, 3), (7 * GROUP - 5, 3), (9 * GROUP, 5)]
)
def test_the_largest_elements_are_those_of_top_k_in_its_order_also_among_equals(vocab_size, k):
    rng = np.random.default_rng(vocab_size)
    few = rng.integers(0, 4, (9, 3, vocab_size)).astype(np.float32)
    few[:, :, rng.permutation(vocab_size)[: vocab_size - 2]] = -np.inf
    # All hypotheses of a prompt alike, so that their continuations are equal in pairs.
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
