"""Dropout (Srivastava et al. 2014), inverted: what is kept is scaled up, so that evaluation needs no change."""

import jax
import jax.numpy as jnp


def dropout(rng: jax.Array | None, x: jax.Array, rate: float) -> jax.Array:
    """Zeroes each element of x with probability `rate`; does nothing where `rng` is None or the rate is 0."""
    if rng is None or rate == 0:
        return x
    keep = jax.random.bernoulli(rng, 1 - rate, x.shape)
    return jnp.where(keep, x / (1 - rate), 0)


def split(rng: jax.Array | None, n: int) -> list[jax.Array | None]:
    """Returns n keys from `rng`, or n times None where there is no randomness."""
    return [None] * n if rng is None else list(jax.random.split(rng, n))
