"""A kind of positions: scores fall with the logarithm of the distance, faster from head to head (Chi et al. 2022)."""

import jax.numpy as jnp

from fxf.layers.positions import Positions
from fxf.runs.experiment import default_config


def bias(n_heads, queries_BT, keys_BC):
    distances_B1TC = jnp.abs(queries_BT[:, None, :, None] - keys_BC[:, None, None])
    return -jnp.arange(1, n_heads + 1).reshape(1, n_heads, 1, 1) * jnp.log1p(distances_B1TC)


LOGARITHMIC = Positions(bias=bias)


def get_config():
    config = default_config("reversal")
    config.model.positions = "positions:LOGARITHMIC"
    return config
