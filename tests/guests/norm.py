"""A norm that computes no mean: tanh of a trained multiple (Zhu et al. 2025)."""

import jax
import jax.numpy as jnp

from fxf.base.weights import Weight
from fxf.layers.normalization import Norm, scale_weight
from fxf.runs.experiment import default_config


def spec(config):
    return {"alpha": Weight((), (), jax.nn.initializers.ones), "scale": scale_weight(config, config.d_model, "embed")}


def rows(config, params, x):
    return params["scale"][None] * jnp.tanh(params["alpha"] * x)


TANH = Norm(spec, rows)


def get_config():
    config = default_config("reversal")
    config.model.norm = "norm:TANH"
    return config
