"""A kind of attention whose weights need not sum to one (Ramapuram et al. 2024)."""

import jax
import jax.numpy as jnp

from fxf.layers.attention import Attention
from fxf.runs.experiment import default_config


class Sigmoid(Attention):
    def weigh(self, params, scores_BHTC, bias_BHTC):
        n_BHT1 = (bias_BHTC > -jnp.inf).sum(-1, keepdims=True)
        return jax.nn.sigmoid(scores_BHTC + bias_BHTC - jnp.log(n_BHT1))


def get_config():
    config = default_config("reversal")
    config.model.attention = "attention:Sigmoid"
    return config
