"""Blocking of n-grams that an answer has already (Paulus et al. 2018)."""

import jax
import jax.numpy as jnp


def repeating(tokens_RU: jax.Array, n_tokens_R: jax.Array, size: int, vocab_size: int) -> jax.Array:
    """Returns which next tokens would repeat an n-gram of this size, bool [R, V].

    Args:
      tokens_RU: the new tokens of each row; those from `n_tokens_R` on do not count.
    """
    n_rows, longest = tokens_RU.shape
    if longest < size:
        return jnp.zeros((n_rows, vocab_size), bool)
    starts, before = jnp.arange(longest - size + 1), jnp.arange(size - 1)
    ngrams = tokens_RU[:, starts[:, None] + jnp.arange(size)[None]]  # [R, starts, size]
    newest = jnp.maximum(n_tokens_R[:, None] - (size - 1) + before[None], 0)
    newest_R1 = jnp.take_along_axis(tokens_RU, newest, axis=1)[:, None]  # the tokens in front of the next one
    is_there = (ngrams[..., :-1] == newest_R1).all(-1) & (starts[None] + size <= n_tokens_R[:, None])
    rows = jnp.arange(n_rows)[:, None]
    return jnp.zeros((n_rows, vocab_size), bool).at[rows, ngrams[..., -1]].max(is_there)
