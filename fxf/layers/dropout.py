"""Inverted dropout (Srivastava et al. 2014): training scales up the kept elements, so evaluation needs no scaling."""

import jax
import jax.numpy as jnp

from fxf.base.random_keys import random_words


def dropout(rng: jax.Array | None, x: jax.Array, rate: float) -> jax.Array:
    """Returns x with each element set to 0 with probability `rate`, or x itself if `rng` is None or the rate is 0.

    The probability is rounded to a multiple of 2^-16, because each random word of 32 bits serves two elements.
    """
    if rng is None or rate == 0:
        return x
    kept = min(max(round((1 - rate) * 2**16), 1), 2**16 - 1)
    words = random_words(rng, -(-x.size // 2))
    halves = jax.lax.bitcast_convert_type(words, jnp.uint16).reshape(-1)[: x.size].reshape(x.shape)
    return jnp.where(halves < kept, x * (2**16 / kept), 0)


def split(rng: jax.Array | None, n: int) -> list[jax.Array | None]:
    """Returns n keys from `rng`, or n times None if `rng` is None."""
    return [None] * n if rng is None else list(jax.random.split(rng, n))
