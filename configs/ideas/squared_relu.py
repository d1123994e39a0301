"""Squared ReLU: the activation max(x, 0)², which needs less training, as the search of Primer found.

So et al. 2021, "Primer: Searching for Efficient Transformers for Language Modeling", arXiv 2109.08668.

fxf train --config=ideas/squared_relu --workdir=runs/squared_relu

All reversals are right (exact_match 1). It takes seconds, mostly for compilation.
"""

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

import fxf


def squared_relu(x: jax.Array) -> jax.Array:
    """Returns max(x, 0)²."""
    return jnp.square(jax.nn.relu(x))


def get_config() -> ConfigDict:
    config = fxf.read_config("reversal:example0")
    config.model.activation = "squared_relu:squared_relu"
    return config
