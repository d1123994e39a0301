"""Normalization: layer norm (seed 004, "Normalization layers"; Ba et al. 2016), RMS norm (Zhang and Sennrich 2019)."""

import jax
import jax.numpy as jnp

from fxf.layers.config import TransformerConfig
from fxf.weights import Params, Spec, Weight


def normalization_spec(config: TransformerConfig) -> Spec:
    scale = {"scale": Weight((config.d_model,), ("embed",), jax.nn.initializers.ones)}
    if config.norm == "rms":
        return scale
    return {**scale, "bias": Weight((config.d_model,), ("embed",), jax.nn.initializers.zeros)}


def normalize(config: TransformerConfig, params: Params, x: jax.Array) -> jax.Array:
    """Standardizes each vector of x [..., D], then scales and shifts it; RMS norm neither centres nor shifts.

    It divides by (standard deviation + epsilon), or with norm_epsilon_in='variance' by √(variance + epsilon). The
    deviation is that from the mean, or in RMS norm from 0. All is computed in float32.
    """
    rows = x.reshape(-1, x.shape[-1]).astype(jnp.float32)
    if config.norm == "layer":
        rows = rows - rows.mean(-1, keepdims=True)
    variance = jnp.square(rows).mean(-1, keepdims=True)
    if config.norm_epsilon_in == "variance":
        rows = rows * jax.lax.rsqrt(variance + config.norm_epsilon)
    else:
        # The square root has no derivative at 0: a constant vector gets deviation 0 and passes no gradient through it.
        positive = variance > 0
        deviation = jnp.where(positive, jnp.sqrt(jnp.where(positive, variance, 1)), 0)
        rows = rows / (deviation + config.norm_epsilon)
    rows = rows * params["scale"][None]
    return (rows + params["bias"][None] if "bias" in params else rows).reshape(x.shape).astype(x.dtype)
