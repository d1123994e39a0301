"""A short causal convolution: each channel of a token is a weighted sum of its own last few values.

Delta rules and state spaces have one before their memories (Dao and Gu 2024, Yang et al. 2024).
"""

import functools

import jax
import jax.numpy as jnp

from fxf.base.weights import Weight, fan_in
from fxf.layers.layer import Context


def taps_weight(n_taps: int, *sizes: int) -> Weight:
    """Returns the weights of a convolution of heads with these sizes, of which the last row is that of a token itself.

    They are a table with a row for each distance: no product sums over it.
    """
    return Weight((n_taps, *sizes), ("position", "heads", *("head_dim" for _ in sizes[1:])), fan_in())


def causal_convolution(
    x_RT: jax.Array, taps: jax.Array, context: Context, tail: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """Returns Σ_i taps[i] x[t - n + 1 + i] for each token t and i = 0 … n - 1, and the inputs that later tokens need.

    A token reads those of its own document, and no padding.

    Args:
      x_RT: inputs [R, T, …].
      taps: weights [n, …], with the axes of x after its tokens.
      tail: what this function returned for the tokens before these, [R, n - 1, …], where zeros are no tokens; None if
        there are none. They belong to the document of the first token here.

    Returns:
      y like x, and the inputs of each row's last n - 1 tokens before its padding, [R, n - 1, …].
    """
    n_before, length = taps.shape[0] - 1, x_RT.shape[1]
    if tail is None:
        tail = jnp.zeros((x_RT.shape[0], n_before, *x_RT.shape[2:]), x_RT.dtype)
    whole, documents = jnp.concatenate([tail, x_RT], 1), context.places.documents
    taps = taps.astype(x_RT.dtype)[:, None, None]
    if documents is None:
        terms = [whole[:, i : i + length] * taps[i] for i in range(len(taps))]
        return functools.reduce(jnp.add, terms), whole[:, length:]
    before = jnp.pad(documents, ((0, 0), (n_before, 0)), "edge")
    y_RT = jnp.zeros_like(x_RT)
    for i in range(len(taps)):
        same = before[:, i : i + length] == documents
        y_RT += jnp.where(_like(same, x_RT), whole[:, i : i + length], 0) * taps[i]
    at = context.real.sum(1, keepdims=True) + jnp.arange(n_before)[None]
    same = jnp.take_along_axis(before, at, 1) == documents.max(1, keepdims=True)
    return y_RT, jnp.where(_like(same, x_RT), jnp.take_along_axis(whole, _like(at, x_RT), 1), 0)


def _like(of_tokens: jax.Array, x_RT: jax.Array) -> jax.Array:
    """Returns an array [R, T] with as many axes as x."""
    return of_tokens.reshape(*of_tokens.shape, *(1 for _ in x_RT.shape[2:]))
