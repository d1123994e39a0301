"""Rules on the logits of the next token: penalties, and tokens that an answer must or must not have."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fxf.models.decode_config import DecodeConfig
from fxf.models.steps import Prompts


class Words(NamedTuple):
    """Tokens that answers must and must not have.

    Attributes:
      banned: sequences of tokens that no answer contains.
      prefix: the tokens that each answer begins with, whatever the other rules say.
      begins: the token that the decoder reads before a text; the repetition penalty does not count it.
    """

    banned: Sequence[Sequence[int]] = ()
    prefix: Sequence[int] = ()
    begins: int = 0


@dataclasses.dataclass(frozen=True)
class Rules:
    """The rules of a search for B prompts, which has R rows of tokens, W for each prompt.

    Attributes:
      ends: an array of the end tokens; the first one fills the positions after an answer.
      prompts: the prompts; the repetition penalty counts their tokens too.
    """

    config: DecodeConfig
    ends: Any
    words: Words = dataclasses.field(default_factory=Words)
    prompts: Prompts = dataclasses.field(default_factory=dict)

    def applied(self, logits_RV: jax.Array, tokens_RU: jax.Array, n_tokens_R: jax.Array) -> jax.Array:
        """Returns the logits after all rules; arguments as those of `penalized`."""
        logits_RV = self.penalized(logits_RV, tokens_RU, n_tokens_R)
        return self.allowed(logits_RV, tokens_RU, n_tokens_R) if self.exclude else logits_RV

    def penalized(self, logits_RV: jax.Array, tokens_RU: jax.Array, n_tokens_R: jax.Array) -> jax.Array:
        """Returns the logits after the repetition penalty (Keskar et al. 2019; negative logits are multiplied).

        Args:
          tokens_RU: the new tokens of each row; those from `n_tokens_R` on do not count.
        """
        penalty = self.config.repetition_penalty
        if penalty == 1:
            return logits_RV
        is_there_RU = jnp.arange(tokens_RU.shape[1])[None] < n_tokens_R[:, None]
        seen_RV = present(tokens_RU, is_there_RU, logits_RV.shape[1])
        if self.prompts:
            tokens_BP = jnp.concatenate([self.prompts["first"][:, None], self.prompts["tokens"]], axis=1)
            places_1P = jnp.arange(tokens_BP.shape[1])[None]
            begins_BP = (places_1P == 0) & (tokens_BP == self.words.begins)
            is_there_BP = (places_1P <= self.prompts["lengths"][:, None]) & ~begins_BP
            read_BV = present(tokens_BP, is_there_BP, logits_RV.shape[1])
            seen_RV |= jnp.repeat(read_BV, len(logits_RV) // len(read_BV), axis=0)
        lower_RV = jnp.where(logits_RV > 0, logits_RV / penalty, logits_RV * penalty)
        return jnp.where(seen_RV, lower_RV, logits_RV)

    @property
    def exclude(self) -> bool:
        """Whether there is a rule that excludes tokens."""
        return bool(self.config.no_repeat_ngram or self.config.min_tokens or self.words.banned or self.words.prefix)

    def allowed(self, logits_RV: jax.Array, tokens_RU: jax.Array, n_tokens_R: jax.Array) -> jax.Array:
        """Returns the logits with -inf for the tokens that must not come next."""
        vocab_size, newest = logits_RV.shape[1], tokens_RU.shape[1]
        tokens_V, excluded_RV = jnp.arange(vocab_size), jnp.zeros(logits_RV.shape, bool)
        if size := self.config.no_repeat_ngram:
            excluded_RV |= repeating(tokens_RU, n_tokens_R, size, vocab_size)
        if self.config.min_tokens:
            too_short_R1 = (n_tokens_R < self.config.min_tokens)[:, None]
            excluded_RV |= too_short_R1 & jnp.isin(tokens_V, self.ends)[None]
        for sequence in self.words.banned:
            n_before = len(sequence) - 1
            places_RU = n_tokens_R[:, None] - n_before + jnp.arange(n_before)[None]
            before_RU = jnp.take_along_axis(tokens_RU, jnp.clip(places_RU, 0, newest - 1), axis=1)
            follows_R = (before_RU == jnp.array(sequence[:-1], jnp.int32)[None]).all(1) & (n_tokens_R >= n_before)
            excluded_RV |= follows_R[:, None] & (tokens_V == sequence[-1])[None]
        if prefix := self.words.prefix:
            next_R1 = jnp.array(prefix, jnp.int32)[jnp.minimum(n_tokens_R, len(prefix) - 1)][:, None]
            in_prefix_R1 = (n_tokens_R < len(prefix))[:, None]
            excluded_RV = jnp.where(in_prefix_R1, tokens_V[None] != next_R1, excluded_RV)
        return jnp.where(excluded_RV, -jnp.inf, logits_RV)


def present(tokens_RU: jax.Array, is_there_RU: jax.Array, vocab_size: int) -> jax.Array:
    """Returns which tokens of the vocabulary occur in each row, bool [R, V]."""
    rows_R1 = jnp.arange(len(tokens_RU))[:, None]
    return jnp.zeros((len(tokens_RU), vocab_size), bool).at[rows_R1, tokens_RU].max(is_there_RU)


def repeating(tokens_RU: jax.Array, n_tokens_R: jax.Array, size: int, vocab_size: int) -> jax.Array:
    """Returns which next tokens would repeat an n-gram of this size, bool [R, V] (Paulus et al. 2018).

    Args:
      tokens_RU: the new tokens of each row; those from `n_tokens_R` on do not count.
    """
    n_rows, longest = tokens_RU.shape
    if longest < size:
        return jnp.zeros((n_rows, vocab_size), bool)
    starts, before = jnp.arange(longest - size + 1), jnp.arange(size - 1)
    ngrams = tokens_RU[:, starts[:, None] + jnp.arange(size)[None]]  # [R, starts, size]
    newest = jnp.maximum(n_tokens_R[:, None] - (size - 1) + before[None], 0)
    newest_R1 = jnp.take_along_axis(tokens_RU, newest, axis=1)[:, None]  # the tokens before the next one
    is_there = (ngrams[..., :-1] == newest_R1).all(-1) & (starts[None] + size <= n_tokens_R[:, None])
    return present(ngrams[..., -1], is_there, vocab_size)
