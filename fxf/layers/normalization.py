"""Normalization: layer norm (seed 004, "Normalization layers"; Ba et al. 2016), RMS norm (Zhang and Sennrich 2019)."""

import jax
import jax.numpy as jnp

from fxf.layers.config import TransformerConfig
from fxf.layers.linear import as_float32
from fxf.weights import Params, Spec, Weight


def scale_weight(config: TransformerConfig, width: int, axis: str) -> Weight:
    """Returns the scale of a norm of vectors of this width."""
    initializers = jax.nn.initializers
    return Weight((width,), (axis,), initializers.zeros if config.zero_centered_scale else initializers.ones)


def scale_factor(config: TransformerConfig, scale: jax.Array) -> jax.Array:
    """Returns the factor of normalized vectors: the scale, or 1 + scale with zero_centered_scale."""
    return 1 + scale if config.zero_centered_scale else scale


def normalization_spec(config: TransformerConfig) -> Spec:
    """Returns the scale of a norm, and the bias of a layer norm."""
    scale = {"scale": scale_weight(config, config.d_model, "embed")}
    if config.norm == "rms":
        return scale
    return {**scale, "bias": Weight((config.d_model,), ("embed",), jax.nn.initializers.zeros)}


def normalize(config: TransformerConfig, params: Params, x: jax.Array) -> jax.Array:
    """Returns the vectors of x [..., D], standardized, scaled and shifted. RMS norm neither centres nor shifts them.

    The divisor is (standard deviation + epsilon), or √(variance + epsilon) with norm_epsilon_in='variance'. Deviations
    are from the mean, or from 0 in RMS norm. The computation is in float32, or in float64 if x is.
    """
    rows = as_float32(x.reshape(-1, x.shape[-1]))
    if config.norm != "rms":
        rows = rows - rows.mean(-1, keepdims=True)
    variance = jnp.square(rows).mean(-1, keepdims=True)
    if config.norm_epsilon_in == "variance":
        rows = rows * jax.lax.rsqrt(variance + config.norm_epsilon)
    else:
        # √ has no derivative at 0: the deviation of a constant vector is 0 and has no gradient.
        positive = variance > 0
        deviation = jnp.where(positive, jnp.sqrt(jnp.where(positive, variance, 1)), 0)
        rows = rows / (deviation + config.norm_epsilon)
    rows = rows * scale_factor(config, params["scale"])[None]
    return (rows + params["bias"][None] if "bias" in params else rows).reshape(x.shape).astype(x.dtype)
