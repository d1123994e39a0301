"""Dropout (Srivastava et al. 2014), inverted: what is kept is scaled up, so that evaluation needs no change."""

import jax
import jax.numpy as jnp


def dropout(rng: jax.Array | None, x: jax.Array, rate: float) -> jax.Array:
    """Zeroes each element of x with probability `rate`; does nothing where `rng` is None or the rate is 0.

    The probability is rounded to a multiple of 2^-16: each random word of 32 bits serves two elements, because drawing
    them takes a tenth of a small model's training step.
    """
    if rng is None or rate == 0:
        return x
    kept = min(max(round((1 - rate) * 2**16), 1), 2**16 - 1)
    words = jax.random.bits(rng, (-(-x.size // 2),), jnp.uint32)
    halves = jax.lax.bitcast_convert_type(words, jnp.uint16).reshape(-1)[: x.size].reshape(x.shape)
    return jnp.where(halves < kept, x * (2**16 / kept), 0)


def split(rng: jax.Array | None, n: int) -> list[jax.Array | None]:
    """Returns n keys from `rng`, or n times None where there is no randomness."""
    return [None] * n if rng is None else list(jax.random.split(rng, n))
