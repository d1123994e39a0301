"""Beam search: the most probable continuations of each prompt."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from fxf.decoding.blocking import repeating, unless_blocked
from fxf.decoding.config import DecodeConfig
from fxf.decoding.steps import Ends, Method, ends_of, is_end
from fxf.layers.cache import Cache

GROUP = 32  # columns in a group, whose maximum `best_continuations` compares


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Beams:
    """The state of the search for B prompts, with W hypotheses of each."""

    limit_B: jax.Array  # the largest number of new tokens
    n_tokens_B: jax.Array  # number of new tokens of each live hypothesis
    live_BWU: jax.Array  # tokens of the live hypotheses
    live_log_BW: jax.Array  # log-probabilities of the live hypotheses
    finished_BWU: jax.Array  # tokens of the finished hypotheses, the best first
    finished_score_BW: jax.Array  # scores of the finished hypotheses; -inf where there is none yet
    stopped_B: jax.Array


def beam_search(max_tokens: int, end_token: Ends, decode: DecodeConfig) -> Method:
    """Returns the method that searches for the continuations of each prompt with the highest score.

    The score of a hypothesis is log-probability / length^length_penalty; both include its end token. Each step looks at
    the A = 2W best continuations of the W live hypotheses. Those among the first W that end are finished. The W best of
    the others stay live. At `max_tokens`, the limit of a prompt, or where no_repeat_ngram leaves no continuation, the
    live hypotheses are finished as they are. With early_stop the search for a prompt stops when W hypotheses are
    finished, so a beam of width 1 is greedy decoding. Without early_stop it stops when no live hypothesis can win.

    The output is int32 tokens [N, W, U] and scores [N, W], the best first, where U is `max_tokens`. End tokens fill the
    places after a hypothesis. The score -inf marks a hypothesis that does not exist.
    """
    width = decode.beam_width

    def start(number_B: jax.Array, limit_B: jax.Array, cache: Cache) -> tuple[_Beams, Cache]:
        batch_size = len(number_B)
        nothing_BW = jnp.full((batch_size, width), -jnp.inf)
        tokens_BWU = jnp.full((batch_size, width, max_tokens), ends_of(end_token)[0], jnp.int32)
        beams = _Beams(
            limit_B=limit_B,
            n_tokens_B=jnp.zeros(batch_size, jnp.int32),
            live_BWU=tokens_BWU,
            live_log_BW=nothing_BW.at[:, 0].set(0),  # one hypothesis is enough while all are the same
            finished_BWU=tokens_BWU,
            finished_score_BW=nothing_BW,
            stopped_B=jnp.zeros(batch_size, bool),
        )
        return beams, cache.select(jnp.zeros((batch_size, width), jnp.int32))

    def choose(beams: _Beams, cache: Cache, logits_RV: jax.Array) -> tuple[_Beams, Cache, jax.Array]:
        logits_BWV = logits_RV.reshape(len(beams.n_tokens_B), width, -1)
        n_alternatives = min(2 * width, width * logits_BWV.shape[2])
        blocked_BWV = _blocked(beams, logits_BWV.shape, decode.no_repeat_ngram)
        log_BA, parent_BA, token_BA = best_continuations(beams.live_log_BW, logits_BWV, n_alternatives, blocked_BWV)
        is_new_B1U = jnp.arange(max_tokens)[None, None] == beams.n_tokens_B[:, None, None]
        tokens_BAU = jnp.where(is_new_B1U, token_BA[..., None], _take(beams.live_BWU, parent_BA))

        n_tokens_B = beams.n_tokens_B + 1
        ends_BA = is_end(token_BA, end_token)
        finishes_BA = ends_BA & (jnp.arange(n_alternatives)[None] < width)
        score_BA = jnp.where(finishes_BA, log_BA / _length(n_tokens_B, decode)[:, None], -jnp.inf)
        finished_score_BW, finished_BWU = _merge(beams, score_BA, tokens_BAU)

        live_log_BW, chosen_BW = jax.lax.top_k(jnp.where(ends_BA, -jnp.inf, log_BA), width)
        stopped_B = _stopped(finished_score_BW, live_log_BW, beams.limit_B, decode)
        live_BWU = _take(tokens_BAU, chosen_BW)
        new = _Beams(beams.limit_B, n_tokens_B, live_BWU, live_log_BW, finished_BWU, finished_score_BW, stopped_B)
        new = unless_blocked(log_BA[:, 0] == -jnp.inf, beams, new) if decode.no_repeat_ngram else new
        return new, cache.select(_take(parent_BA, chosen_BW)), _take(token_BA, chosen_BW).reshape(-1)

    def is_finished(beams: _Beams) -> jax.Array:
        return beams.stopped_B | (beams.n_tokens_B == beams.limit_B)

    def output(beams: _Beams) -> tuple[jax.Array, jax.Array]:
        of_live_BW = beams.live_log_BW / _length(beams.limit_B, decode)[:, None]
        score_BW = jnp.where(beams.stopped_B[:, None], -jnp.inf, of_live_BW)
        score_BW, tokens_BWU = _merge(beams, score_BW, beams.live_BWU)
        return tokens_BWU, score_BW

    return Method(max_tokens, start, choose, is_finished, output, room=width * max_tokens)


def _stopped(
    finished_score_BW: jax.Array, live_log_BW: jax.Array, limit_B: jax.Array, decode: DecodeConfig
) -> jax.Array:
    """Returns whether the search for each prompt stops, bool [B].

    A live hypothesis cannot win if its log-probability, divided by the penalty of the largest length, is at most the
    score of the last of the W best.
    """
    if decode.early_stop:
        return finished_score_BW[:, -1] > -jnp.inf
    return finished_score_BW[:, -1] >= live_log_BW[:, 0] / _length(limit_B, decode)


def _length(n_tokens: Any, decode: DecodeConfig) -> jax.Array:
    return jnp.asarray(n_tokens, jnp.float32) ** decode.length_penalty


def _blocked(beams: _Beams, shape: tuple[int, ...], size: int) -> jax.Array | None:
    """Returns which continuations of the live hypotheses repeat an n-gram of this size, bool [B, W, V]; None for 0."""
    if not size:
        return None
    rows_RU, n_tokens_R = beams.live_BWU.reshape(-1, beams.live_BWU.shape[-1]), jnp.repeat(beams.n_tokens_B, shape[1])
    return repeating(rows_RU, n_tokens_R, size, shape[2]).reshape(shape)


def best_continuations(
    live_log_BW: jax.Array, logits_BWV: jax.Array, n_alternatives: int, blocked_BWV: jax.Array | None = None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns the most probable continuations of each prompt: log-probability, hypothesis and token, each [B, A].

    The order of equal elements is that of `jax.lax.top_k`. On a CPU `top_k` of a large vocabulary takes three times as
    long. The A largest elements are in A groups of columns, those with the largest maxima, so only these are sorted.

    Args:
      blocked_BWV: the continuations to leave out; the log-probabilities of the others stay.
    """
    batch_size, _, vocab_size = logits_BWV.shape
    n_groups = -(-vocab_size // GROUP)
    allowed_BWV = logits_BWV if blocked_BWV is None else jnp.where(blocked_BWV, -jnp.inf, logits_BWV)
    one_group, padding = (1, 1, GROUP), ((0, 0), (0, 0), (0, n_groups * GROUP - vocab_size))
    maxima = jax.lax.reduce_window(allowed_BWV, -jnp.inf, jax.lax.max, one_group, one_group, padding)
    largest_BW = maxima.max(-1) if blocked_BWV is None else logits_BWV.max(-1)  # the maxima are [B, W, groups]
    sum_BW = jnp.exp(logits_BWV - largest_BW[..., None]).sum(-1)
    shift_BW = live_log_BW - largest_BW - jnp.log(sum_BW)  # turns logits into log-probabilities

    maxima = (maxima + shift_BW[..., None]).reshape(batch_size, -1)
    # Sorted indices of groups keep the order of equal elements.
    chosen = jnp.sort(jax.lax.top_k(maxima, min(n_alternatives, maxima.shape[1]))[1])
    hypothesis = chosen // n_groups
    token = (chosen % n_groups * GROUP)[..., None] + jnp.arange(GROUP)[None, None]  # [B, chosen, GROUP]
    row_B11 = jnp.arange(batch_size)[:, None, None]
    logits = allowed_BWV.at[row_B11, hypothesis[..., None], token].get(mode="fill", fill_value=-jnp.inf)
    log = logits + _take(shift_BW, hypothesis)[..., None]

    log_BA, best_BA = jax.lax.top_k(log.reshape(batch_size, -1), n_alternatives)
    token_BA = _take(token.reshape(batch_size, -1), best_BA)
    # If the chosen groups have fewer columns, the rest has the log-probability -inf and any token.
    return log_BA, _take(hypothesis, best_BA // GROUP), jnp.minimum(token_BA, vocab_size - 1)


def _merge(beams: _Beams, score_BA: jax.Array, tokens_BAU: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the scores and tokens of the W best of the finished hypotheses and the A new ones."""
    scores = jnp.concatenate([beams.finished_score_BW, score_BA], axis=1)
    tokens = jnp.concatenate([beams.finished_BWU, tokens_BAU], axis=1)
    score_BW, chosen_BW = jax.lax.top_k(scores, beams.finished_score_BW.shape[1])
    return score_BW, _take(tokens, chosen_BW)


def _take(x: jax.Array, indices: jax.Array) -> jax.Array:
    """Returns, for each row of x [B, n, ...], the elements at that row's indices [B, m]: [B, m, ...]."""
    return x[jnp.arange(x.shape[0])[:, None], indices]
