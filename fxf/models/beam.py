"""Beam search: the most probable continuations of each prompt."""

import dataclasses

import flax.struct
import jax
import jax.numpy as jnp

from fxf.models.rules import Rules
from fxf.models.steps import where_prompts

GROUP = 32  # columns in a group, whose maximum `largest` compares


class Beams(flax.struct.PyTreeNode):
    """The state of the search for B prompts, each with W live and at most W finished hypotheses."""

    limit_B: jax.Array  # the largest number of new tokens
    n_tokens_B: jax.Array  # the number of new tokens of each live hypothesis
    live_BWU: jax.Array  # tokens of the live hypotheses
    live_log_BW: jax.Array  # log-probabilities of the live hypotheses
    finished_BWU: jax.Array  # tokens of the finished hypotheses, the best first
    score_BW: jax.Array  # scores of the finished hypotheses; -inf where there is none yet
    is_finished_B: jax.Array


@dataclasses.dataclass(frozen=True)
class BeamSearch:
    """Searches for the continuations of each prompt with the highest score.

    The score of a hypothesis is log-probability / length^length_penalty; both include its end token. Each step takes
    the A = (1 + E) W best continuations of the W live hypotheses, with E end tokens. Those among the first W that end
    are finished. The W best that do not end stay live. At the limit of a prompt, or where the rules leave no
    continuation, the live hypotheses are finished as they are. Probabilities are not renormalized over the tokens that
    the rules allow. With early_stop the search for a prompt stops when W hypotheses are finished. Otherwise it stops
    when no live hypothesis can win.
    """

    rules: Rules

    @property
    def width(self) -> int:
        """The number of live hypotheses."""
        return self.rules.config.beam_width

    def start(self, numbers_B: jax.Array, limit_B: jax.Array, max_tokens: int) -> Beams:
        """Returns the state before the first step."""
        shape = len(limit_B), self.width
        tokens_BWU = jnp.full((*shape, max_tokens), self.rules.ends[0], jnp.int32)
        nothing_BW = jnp.full(shape, -jnp.inf)
        log_BW = nothing_BW.at[:, 0].set(0)  # one live hypothesis, because all are the same at first
        is_finished_B = jnp.zeros(len(limit_B), bool)
        return Beams(limit_B, jnp.zeros_like(limit_B), tokens_BWU, log_BW, tokens_BWU, nothing_BW, is_finished_B)

    def choose(self, beams: Beams, logits_BWV: jax.Array) -> tuple[Beams, jax.Array, jax.Array]:
        """Returns the state after a step, and the parent and the new token of each live hypothesis, each [B, W]."""
        log_BA, parent_BA, token_BA = self._continuations(beams, logits_BWV)
        is_new_B1U = jnp.arange(beams.live_BWU.shape[2])[None, None] == beams.n_tokens_B[:, None, None]
        tokens_BAU = jnp.where(is_new_B1U, token_BA[..., None], _take(beams.live_BWU, parent_BA))
        n_tokens_B = beams.n_tokens_B + 1

        ends_BA = jnp.isin(token_BA, self.rules.ends)
        finishes_BA = ends_BA & (jnp.arange(token_BA.shape[1])[None] < self.width)
        score_BA = jnp.where(finishes_BA, self._score(log_BA, n_tokens_B), -jnp.inf)
        finished_BWU, score_BW = _best(beams, tokens_BAU, score_BA)
        live_log_BW, chosen_BW = jax.lax.top_k(jnp.where(ends_BA, -jnp.inf, log_BA), self.width)

        is_finished_B = self._is_won(score_BW, live_log_BW, beams.limit_B) | (n_tokens_B == beams.limit_B)
        live_BWU = _take(tokens_BAU, chosen_BW)
        new = Beams(beams.limit_B, n_tokens_B, live_BWU, live_log_BW, finished_BWU, score_BW, is_finished_B)
        if self.rules.exclude:
            stopped = beams.replace(is_finished_B=jnp.ones_like(is_finished_B))
            new = where_prompts(log_BA[:, 0] == -jnp.inf, stopped, new)
        return new, _take(parent_BA, chosen_BW), _take(token_BA, chosen_BW)

    def output(self, beams: Beams) -> tuple[jax.Array, jax.Array]:
        """Returns the tokens, int32 [B, W, U], and the scores [B, W], the best first; -inf where there is none."""
        is_won_B1 = self._is_won(beams.score_BW, beams.live_log_BW, beams.limit_B)[:, None]
        score_BW = self._score(beams.live_log_BW, beams.n_tokens_B)
        return _best(beams, beams.live_BWU, jnp.where(is_won_B1, -jnp.inf, score_BW))

    def _score(self, log_BA: jax.Array, n_tokens_B: jax.Array) -> jax.Array:
        return log_BA / (n_tokens_B.astype(jnp.float32) ** self.rules.config.length_penalty)[:, None]

    def _is_won(self, score_BW: jax.Array, live_log_BW: jax.Array, limit_B: jax.Array) -> jax.Array:
        """Returns whether no live hypothesis can win any more, bool [B].

        A live hypothesis cannot win if its log-probability, divided by the penalty of the largest length, is at most
        the score of the last of the W best.
        """
        if self.rules.config.early_stop:
            return score_BW[:, -1] > -jnp.inf
        return score_BW[:, -1] >= self._score(live_log_BW, limit_B)[:, 0]

    def _continuations(self, beams: Beams, logits_BWV: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Returns log-probability, hypothesis and token of the A best continuations of each prompt, each [B, A]."""
        rows_RU = beams.live_BWU.reshape(-1, beams.live_BWU.shape[2])
        so_far = rows_RU, jnp.repeat(beams.n_tokens_B, self.width)
        logits_RV = self.rules.penalized(logits_BWV.reshape(len(rows_RU), -1), *so_far)
        shift_BW = beams.live_log_BW - jax.nn.logsumexp(logits_RV.reshape(logits_BWV.shape), axis=2)
        if self.rules.exclude:
            logits_RV = self.rules.allowed(logits_RV, *so_far)
        logits_BWV = logits_RV.reshape(logits_BWV.shape)
        return largest(logits_BWV, shift_BW, min((1 + len(self.rules.ends)) * self.width, logits_BWV[0].size))


def largest(x_BWV: jax.Array, shift_BW: jax.Array, n: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns the n largest elements of x + shift among each [W, V], and their two indices, each [B, n].

    Equal elements have the order of `jax.lax.top_k`, which takes two to ten times as long for a vocabulary on a CPU.
    The n largest elements are in the n groups of columns with the largest maxima, so only these are sorted.
    """
    batch_size, _, vocab_size = x_BWV.shape
    n_groups = -(-vocab_size // GROUP)
    one_group, padding = (1, 1, GROUP), ((0, 0), (0, 0), (0, n_groups * GROUP - vocab_size))
    maxima = jax.lax.reduce_window(x_BWV, -jnp.inf, jax.lax.max, one_group, one_group, padding) + shift_BW[..., None]
    maxima = maxima.reshape(batch_size, -1)
    # Sorted indices of groups keep the order of equal elements.
    chosen = jnp.sort(jax.lax.top_k(maxima, min(n, maxima.shape[1]))[1])
    columns_11G = jnp.arange(GROUP, dtype=jnp.int32)[None, None]
    row, token = chosen // n_groups, (chosen % n_groups * GROUP)[..., None] + columns_11G
    row_B11 = jnp.arange(batch_size)[:, None, None]
    values = x_BWV.at[row_B11, row[..., None], token].get(mode="fill", fill_value=-jnp.inf)  # [B, groups, GROUP]
    values = values + _take(shift_BW, row)[..., None]
    found_BA, best_BA = jax.lax.top_k(values.reshape(batch_size, -1), n)
    token_BA = _take(token.reshape(batch_size, -1), best_BA)
    # If the chosen groups have fewer than n columns, the rest is -inf, with any token.
    return found_BA, _take(row, best_BA // GROUP), jnp.minimum(token_BA, vocab_size - 1)


def _best(beams: Beams, tokens_BAU: jax.Array, score_BA: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the tokens and scores of the W best among the finished hypotheses and A others."""
    scores = jnp.concatenate([beams.score_BW, score_BA], axis=1)
    score_BW, chosen_BW = jax.lax.top_k(scores, beams.score_BW.shape[1])
    return _take(jnp.concatenate([beams.finished_BWU, tokens_BAU], axis=1), chosen_BW), score_BW


def _take(x: jax.Array, indices: jax.Array) -> jax.Array:
    """Returns, for each row of x [B, n, ...], the elements at that row's indices [B, m]: [B, m, ...]."""
    return x[jnp.arange(x.shape[0])[:, None], indices]
