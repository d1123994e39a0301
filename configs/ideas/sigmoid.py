"""Sigmoid attention: the weight of each key is the sigmoid of its score, whatever the other keys are.

Ramapuram et al. 2024, "Theory, Analysis, and Best Practices for Sigmoid Self-Attention", arXiv 2409.04431.
A bias of -log n makes the initial output over n keys as large as that of a softmax.

fxf train --config=ideas/sigmoid --workdir=runs/sigmoid

Reversal: exact_match 1.00 after 600 steps and a loss of 0.001; 0.99 and 0.009 with plain attention.
It takes about 20 seconds of processor time. The results are those of seed 0.
"""

import dataclasses

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

import fxf
from fxf.base.config import key
from fxf.base.weights import Params
from fxf.layers.attention import Attention


@dataclasses.dataclass(frozen=True)
class Sigmoid(Attention):
    """Attention whose weights are σ(score + bias - log n)."""

    n_keys: int = key(
        0, "n of the bias -log n, such as the length of training; 0: the keys that a query sees", minimum=0
    )

    def weigh(self, params: Params, scores_BHTC: jax.Array, bias_BHTC: jax.Array) -> jax.Array:
        n_BHT1 = self.n_keys or jnp.sum(bias_BHTC > -jnp.inf, axis=-1, keepdims=True)
        return jax.nn.sigmoid(scores_BHTC + bias_BHTC - jnp.log(n_BHT1))


def get_config() -> ConfigDict:
    config = fxf.read_config("reversal:short")
    config.model.attention = "sigmoid:Sigmoid"
    return config
