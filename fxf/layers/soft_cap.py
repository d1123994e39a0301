"""The soft cap of scores and logits (Gemma Team 2024)."""

import jax
import jax.numpy as jnp


def soft_cap(x: jax.Array, cap: float) -> jax.Array:
    """Returns cap · tanh(x / cap), which is within ±cap, or x itself if the cap is 0."""
    return cap * jnp.tanh(x / cap) if cap else x
