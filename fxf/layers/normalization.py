"""Normalization: layer norm (seed 004, "Normalization layers"; Ba et al. 2016), RMS norm (Zhang and Sennrich 2019)."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fxf.base.config import Choices, one_of
from fxf.base.devices import TENSOR, devices_along, target_mesh
from fxf.base.on_gpu import on_gpu
from fxf.base.weights import Params, Spec, Weight
from fxf.layers.config import TransformerConfig
from fxf.layers.linear import as_float32


def scale_weight(config: TransformerConfig, width: int, axis: str) -> Weight:
    """Returns the scale of a norm of vectors of this width."""
    initializers = jax.nn.initializers
    return Weight((width,), (axis,), initializers.zeros if config.zero_centered_scale else initializers.ones)


def scale_factor(config: TransformerConfig, scale: jax.Array) -> jax.Array:
    """Returns the factor of normalized vectors: the scale, or 1 + scale with zero_centered_scale."""
    return 1 + scale if config.zero_centered_scale else scale


def over_root_mean_square(x: jax.Array, epsilon: float) -> jax.Array:
    """Returns x over √(mean square of the last axis + epsilon), in float32, or in float64 if x is float64."""
    mean_square = jnp.square(as_float32(x)).mean(-1, keepdims=True)
    return x * jax.lax.rsqrt(mean_square + epsilon)


class Norm(NamedTuple):
    """A kind of norm.

    Attributes:
      spec: returns its weights.
      rows: returns the normalized vectors of [N, D], each on its own, in float32, or in float64 if they are float64.
      centered: whether the mean is subtracted, if a GPU kernel can compute this kind; None if none can.
    """

    spec: Callable[[TransformerConfig], Spec]
    rows: Callable[[TransformerConfig, Params, jax.Array], jax.Array]
    centered: bool | None = None


def _rms_spec(config: TransformerConfig) -> Spec:
    return {"scale": scale_weight(config, config.d_model, "embed")}


def _layer_spec(config: TransformerConfig) -> Spec:
    return {**_rms_spec(config), "bias": Weight((config.d_model,), ("embed",), jax.nn.initializers.zeros)}


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _standardized(epsilon: float, centered: bool, rows: jax.Array) -> jax.Array:
    """Returns rows, minus their mean if `centered`, over √(mean square + epsilon)."""
    return over_root_mean_square(_centered(rows) if centered else rows, epsilon)


@_standardized.defjvp
def _standardized_jvp(epsilon: float, centered: bool, primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    """Lets the gradient take both means of a row in one pass, and reuse what the norm has computed."""
    (rows,), (change,) = primals, tangents
    mean, mean_change = (x.mean(-1, keepdims=True) if centered else 0.0 for x in (rows, change))
    inverse = jax.lax.rsqrt(jnp.square(rows - mean).mean(-1, keepdims=True) + epsilon)
    y = (rows - mean) * inverse
    return y, (change - mean_change - y * (y * change).mean(-1, keepdims=True)) * inverse


def _centered(rows: jax.Array) -> jax.Array:
    return rows - rows.mean(-1, keepdims=True)


def _rms(config: TransformerConfig, params: Params, rows: jax.Array, centered: bool = False) -> jax.Array:
    """Returns rows, minus their mean if `centered`, over their deviation from 0, times the scale.

    The divisor is (deviation + epsilon), or √(mean square + epsilon) with norm_epsilon_in='variance'.
    """
    if config.norm_epsilon_in == "variance":
        rows = _standardized(config.norm_epsilon, centered, rows)
    else:
        rows = _centered(rows) if centered else rows
        variance = jnp.square(rows).mean(-1, keepdims=True)
        # √ has no derivative at 0: the deviation of a constant vector is 0 and has no gradient.
        positive = variance > 0
        deviation = jnp.where(positive, jnp.sqrt(jnp.where(positive, variance, 1)), 0)
        rows = rows / (deviation + config.norm_epsilon)
    return rows * scale_factor(config, params["scale"])[None]


def _layer(config: TransformerConfig, params: Params, rows: jax.Array) -> jax.Array:
    """Returns the RMS norm of rows minus their mean, plus a bias."""
    return _rms(config, params, rows, centered=True) + params["bias"][None]


NORMS: Choices[Norm] = Choices({"layer": Norm(_layer_spec, _layer, True), "rms": Norm(_rms_spec, _rms, False)})


def normalization_spec(config: TransformerConfig) -> Spec:
    """Returns the weights of a norm; raises a UserError if its kind is unknown."""
    return NORMS[one_of(config.norm, NORMS, "model.norm")].spec(config)


def normalize(config: TransformerConfig, params: Params, x: jax.Array) -> jax.Array:
    """Returns x [..., D] normalized. It computes in float32, or in float64 if x is float64."""
    if kernel := _kernel(config, params, x, passes=False):
        return kernel()
    rows = NORMS[config.norm].rows(config, params, as_float32(x.reshape(-1, x.shape[-1])))
    return rows.reshape(x.shape).astype(x.dtype)


def beside(config: TransformerConfig, params: Params, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns x and x normalized. On a GPU, the kernel of the norm's gradient adds the gradient of the returned x."""
    kernel = _kernel(config, params, x, passes=True)
    return kernel() if kernel else (x, normalize(config, params, x))


def _kernel(config: TransformerConfig, params: Params, x: jax.Array, passes: bool) -> Callable[[], Any] | None:
    """Returns a function that computes the norm by one GPU kernel, or None where none helps."""
    centered, mesh = NORMS[config.norm].centered, target_mesh()
    if not on_gpu() or centered is None or config.norm_epsilon_in != "variance":
        return None
    from fxf.layers import norm_kernel  # imports Pallas, which takes long, and which only a GPU needs

    # A product adds to a copy in place only if neither dropout nor a sum over devices comes between.
    copies = passes and not config.dropout and devices_along(TENSOR) == 1
    kind = norm_kernel.Kind(config.norm_epsilon, centered, passes, copies, mesh)
    weights = (scale_factor(config, params["scale"]), *([params["bias"]] if centered else []))
    return functools.partial(norm_kernel.norm, kind, x, weights) if norm_kernel.fits(x) else None
