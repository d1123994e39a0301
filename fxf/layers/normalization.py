"""Normalization (seed 004, "Normalization layers")."""

import jax
import jax.numpy as jnp

from fxf.weights import Params, Spec, Weight

EPSILON = 1e-6


def normalization_spec(d_model: int) -> Spec:
    return {
        "scale": Weight((d_model,), ("embed",), jax.nn.initializers.ones),
        "bias": Weight((d_model,), ("embed",), jax.nn.initializers.zeros),
    }


def normalize(params: Params, x: jax.Array) -> jax.Array:
    """Standardizes each vector of x [..., D], dividing by (standard deviation + 1e-6), then scales and shifts it."""
    rows = x.reshape(-1, x.shape[-1])
    centred = rows - rows.mean(-1, keepdims=True)
    variance = jnp.square(centred).mean(-1, keepdims=True)
    # The square root has no derivative at 0: a constant vector gets deviation 0 and passes no gradient through it.
    positive = variance > 0
    deviation = jnp.where(positive, jnp.sqrt(jnp.where(positive, variance, 1)), 0)
    rows = centred / (deviation + EPSILON) * params["scale"][None] + params["bias"][None]
    return rows.reshape(x.shape)
