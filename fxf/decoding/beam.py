"""Beam search: the most probable of several continuations of each prompt."""

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from fxf.decoding.config import DecodeConfig
from fxf.decoding.steps import Method
from fxf.layers.cache import Cache

GROUP = 32  # tokens whose maximum stands for them in `best_continuations`


@flax.struct.dataclass
class _Beams:
    """The search for B prompts, with W hypotheses of each."""

    n_tokens_B: jax.Array  # in each live hypothesis
    live_BWN: jax.Array  # their tokens
    live_log_BW: jax.Array  # their log-probabilities
    done_BWN: jax.Array  # ended hypotheses, the best first
    done_score_BW: jax.Array  # -inf where there is none yet
    stopped_B: jax.Array


def beam_search(max_tokens: int, end_token: int, decode: DecodeConfig) -> Method:
    """Returns the method that searches for the continuations of each prompt with the highest score.

    A hypothesis scores log-probability / length^length_penalty, its end token counted in both. At each token the 2W
    best continuations of the W live hypotheses are looked at: those among the first W that end are put aside, and the
    W best that do not end live on. At `max_tokens` the live ones are put aside as they are. With early_stop a prompt
    is done when W hypotheses have ended (so that width 1 is greedy decoding); without, when no live one, its
    log-probability divided by the largest length's penalty, could score more than the last of the W best.

    Its output is int32 tokens [N, W, max_tokens], what follows an end token filled with it, and scores [N, W], the best
    first. A score of -inf marks a hypothesis that does not exist.
    """
    width = decode.beam_width

    def start(number_B: jax.Array, cache: Cache) -> tuple[_Beams, Cache]:
        batch_size = len(number_B)
        nothing_BW = jnp.full((batch_size, width), -jnp.inf)
        tokens_BWN = jnp.full((batch_size, width, max_tokens), end_token, jnp.int32)
        beams = _Beams(
            n_tokens_B=jnp.zeros(batch_size, jnp.int32),
            live_BWN=tokens_BWN,
            live_log_BW=nothing_BW.at[:, 0].set(0),  # all hypotheses are still the same: one of them counts
            done_BWN=tokens_BWN,
            done_score_BW=nothing_BW,
            stopped_B=jnp.zeros(batch_size, bool),
        )
        return beams, cache.select(jnp.zeros((batch_size, width), jnp.int32))

    def choose(beams: _Beams, cache: Cache, logits_RV: jax.Array) -> tuple[_Beams, Cache, jax.Array]:
        logits_BWV = logits_RV.reshape(len(beams.n_tokens_B), width, -1)
        n_candidates = min(2 * width, width * logits_BWV.shape[2])
        log_BC, parent_BC, token_BC = best_continuations(beams.live_log_BW, logits_BWV, n_candidates)
        is_new_B1N = jnp.arange(max_tokens)[None, None] == beams.n_tokens_B[:, None, None]
        tokens_BCN = jnp.where(is_new_B1N, token_BC[..., None], _take(beams.live_BWN, parent_BC))

        n_tokens_B = beams.n_tokens_B + 1
        ends_BC = token_BC == end_token
        aside_BC = ends_BC & (jnp.arange(n_candidates)[None] < width)
        score_BC = jnp.where(aside_BC, log_BC / _length(n_tokens_B, decode)[:, None], -jnp.inf)
        done_score_BW, done_BWN = _merge(beams, score_BC, tokens_BCN)

        live_log_BW, chosen_BW = jax.lax.top_k(jnp.where(ends_BC, -jnp.inf, log_BC), width)
        if decode.early_stop:
            stopped_B = done_score_BW[:, -1] > -jnp.inf
        else:
            stopped_B = done_score_BW[:, -1] >= live_log_BW[:, 0] / _length(max_tokens, decode)
        live_BWN = _take(tokens_BCN, chosen_BW)
        beams = _Beams(n_tokens_B, live_BWN, live_log_BW, done_BWN, done_score_BW, stopped_B)
        return beams, cache.select(_take(parent_BC, chosen_BW)), _take(token_BC, chosen_BW).reshape(-1)

    def ended(beams: _Beams) -> jax.Array:
        return beams.stopped_B | (beams.n_tokens_B == max_tokens)

    def output(beams: _Beams) -> tuple[jax.Array, jax.Array]:
        score_BW = jnp.where(beams.stopped_B[:, None], -jnp.inf, beams.live_log_BW / _length(max_tokens, decode))
        score_BW, tokens_BWN = _merge(beams, score_BW, beams.live_BWN)
        return tokens_BWN, score_BW

    return Method(max_tokens, start, choose, ended, output)


def _length(n_tokens: Any, decode: DecodeConfig) -> jax.Array:
    return jnp.asarray(n_tokens, jnp.float32) ** decode.length_penalty


def best_continuations(live_log_BW: jax.Array, logits_BWV: jax.Array, k: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns the k most probable continuations of each prompt: log-probability, hypothesis and token, each [B, k].

    Of equal ones the first come first, as in `jax.lax.top_k`, which would take a CPU three times as long for all of a
    large vocabulary: the k largest elements are in k of the groups of columns, those of the largest maxima.
    """
    batch_size, _, vocab_size = logits_BWV.shape
    n_groups = -(-vocab_size // GROUP)
    one_group, padding = (1, 1, GROUP), ((0, 0), (0, 0), (0, n_groups * GROUP - vocab_size))
    maxima_BWG = jax.lax.reduce_window(logits_BWV, -jnp.inf, jax.lax.max, one_group, one_group, padding)
    largest_BW = maxima_BWG.max(-1)
    sum_BW = jnp.exp(logits_BWV - largest_BW[..., None]).sum(-1)
    shift_BW = live_log_BW - largest_BW - jnp.log(sum_BW)  # from logits to log-probabilities

    maxima_BG = (maxima_BWG + shift_BW[..., None]).reshape(batch_size, -1)
    # In order, so that of equal elements the first still comes first.
    chosen_BK = jnp.sort(jax.lax.top_k(maxima_BG, min(k, maxima_BG.shape[1]))[1])
    hypothesis_BK = chosen_BK // n_groups
    token_BKG = (chosen_BK % n_groups * GROUP)[..., None] + jnp.arange(GROUP)[None, None]
    row_B11 = jnp.arange(batch_size)[:, None, None]
    logits_BKG = logits_BWV.at[row_B11, hypothesis_BK[..., None], token_BKG].get(mode="fill", fill_value=-jnp.inf)
    log_BKG = logits_BKG + _take(shift_BW, hypothesis_BK)[..., None]

    log_BC, best_BC = jax.lax.top_k(log_BKG.reshape(batch_size, -1), k)
    token_BC = _take(token_BKG.reshape(batch_size, -1), best_BC)
    # Where there are fewer than k, the others have a log-probability of -inf, and some token.
    return log_BC, _take(hypothesis_BK, best_BC // GROUP), jnp.minimum(token_BC, vocab_size - 1)


def _merge(beams: _Beams, score_BC: jax.Array, tokens_BCN: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the best of the hypotheses put aside so far and of new ones."""
    scores = jnp.concatenate([beams.done_score_BW, score_BC], axis=1)
    tokens = jnp.concatenate([beams.done_BWN, tokens_BCN], axis=1)
    score_BW, chosen_BW = jax.lax.top_k(scores, beams.done_score_BW.shape[1])
    return score_BW, _take(tokens, chosen_BW)


def _take(x: jax.Array, index_BW: jax.Array) -> jax.Array:
    """Returns the elements of each row of x [B, C, ...] at that row's indices: [B, W, ...]."""
    return x[jnp.arange(x.shape[0])[:, None], index_BW]
