"""Positional encoding as trained weights (seed 004, "Positional Encoding")."""

from typing import Any

import jax
import jax.numpy as jnp

from fxf.config import TransformerConfig
from fxf.weights import Params, Spec, Weight


def sinusoids(key: jax.Array | None, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos of the same, for pos = 1 … M: an array [M, D]."""
    del key
    max_len, d_model = shape
    axis = jnp.arange(d_model)[None]
    angles = jnp.arange(1, max_len + 1)[:, None] / 10000.0 ** ((axis - axis % 2) / d_model)
    return jnp.where(axis % 2 == 0, jnp.sin(angles), jnp.cos(angles)).astype(dtype)


def positional_encoding_spec(config: TransformerConfig) -> Spec:
    return {"table": Weight((config.max_len, config.d_model), ("position", "embed"), sinusoids)}


def positional_encoding(params: Params, x_BTD: jax.Array, positions_BT: jax.Array) -> jax.Array:
    """Adds to each vector the row of its position, counted from 0; [1, T] positions serve a whole batch."""
    return x_BTD + params["table"][positions_BT]
