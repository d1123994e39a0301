"""Normalization (seed 004, "Normalization layers"; Ba et al. 2016)."""

import jax
import jax.numpy as jnp

from fxf.config import TransformerConfig
from fxf.weights import Params, Spec, Weight


def normalization_spec(config: TransformerConfig) -> Spec:
    return {
        "scale": Weight((config.d_model,), ("embed",), jax.nn.initializers.ones),
        "bias": Weight((config.d_model,), ("embed",), jax.nn.initializers.zeros),
    }


def normalize(config: TransformerConfig, params: Params, x: jax.Array) -> jax.Array:
    """Standardizes each vector of x [..., D], then scales and shifts it.

    It divides by (standard deviation + epsilon), or with norm_epsilon_in='variance' by √(variance + epsilon).
    """
    rows = x.reshape(-1, x.shape[-1])
    centred = rows - rows.mean(-1, keepdims=True)
    variance = jnp.square(centred).mean(-1, keepdims=True)
    if config.norm_epsilon_in == "variance":
        rows = centred * jax.lax.rsqrt(variance + config.norm_epsilon)
    else:
        # The square root has no derivative at 0: a constant vector gets deviation 0 and passes no gradient through it.
        positive = variance > 0
        deviation = jnp.where(positive, jnp.sqrt(jnp.where(positive, variance, 1)), 0)
        rows = centred / (deviation + config.norm_epsilon)
    return (rows * params["scale"][None] + params["bias"][None]).reshape(x.shape)
