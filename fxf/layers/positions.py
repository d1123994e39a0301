"""Positional encodings that are added to the embeddings: trained tables, or formulas of the position."""

import math
from typing import Any

import jax
import jax.numpy as jnp

from fxf.config import TransformerConfig
from fxf.weights import Params, Spec, Weight


def interleaved(positions: jax.Array, d_model: int) -> jax.Array:
    """PE(p, 2i) = sin(p / 10000^(2i/D)), PE(p, 2i+1) = cos of the same (seeds 003 and 004): [...] to [..., D]."""
    axis = jnp.arange(d_model).reshape((1,) * positions.ndim + (d_model,))
    angles = positions[..., None] / 10000.0 ** ((axis - axis % 2) / d_model)
    return jnp.where(axis % 2 == 0, jnp.sin(angles), jnp.cos(angles))


def concatenated(positions: jax.Array, d_model: int) -> jax.Array:
    """sin(p / 10000^(2i/D)) for i = 1 … D/2, then the cosines; p counts from 1 (seed 000, "Embedding")."""
    i = jnp.arange(1, d_model // 2 + 1).reshape((1,) * positions.ndim + (d_model // 2,))
    angles = (positions[..., None] + 1) / 10000.0 ** (2 * i / d_model)
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)


def sinusoids(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """The interleaved sinusoids of positions 1 … M as an initializer (seed 004, "Positional Encoding"): [M, D]."""
    del key
    return interleaved(jnp.arange(1, shape[0] + 1), shape[1]).astype(dtype)


def _normal(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    return jax.random.normal(key, shape, dtype) / math.sqrt(shape[1])


TABLES = {"sinusoidal_trained": sinusoids, "learned": _normal}  # by initializer
FORMULAS = {"sinusoidal": interleaved, "sinusoidal_concatenated": concatenated}


def positional_encoding_spec(config: TransformerConfig) -> Spec:
    if config.positions in FORMULAS:
        return {}
    return {"positions": Weight((config.max_len, config.d_model), ("position", "embed"), TABLES[config.positions])}


def positional_encoding(
    config: TransformerConfig, params: Params, x_BTD: jax.Array, positions_BT: jax.Array
) -> jax.Array:
    """Adds to each vector the encoding of its position, counted from 0; [1, T] positions serve a whole batch."""
    if config.positions in FORMULAS:
        return x_BTD + FORMULAS[config.positions](positions_BT, config.d_model).astype(x_BTD.dtype)
    return x_BTD + params["positions"][positions_BT]
