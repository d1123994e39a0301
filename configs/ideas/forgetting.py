"""Forgetting attention (FoX): a gate of each token and head makes later queries forget some of what came before.

Lin et al. 2025, "Forgetting Transformer: Softmax Attention with a Forget Gate", arXiv 2503.02130.
With gates f = σ(X forget + bias) the score of query i and key j gets the term log f_(j+1) + … + log f_i. So tokens have
an order without positions.

fxf train --config=ideas/forgetting --workdir=runs/forgetting

Reversal without other positions: exact_match 0.43 after 600 steps; 0.39 with plain attention. With initial gates of 1/2
it is 0.20, because they forget what a reversal needs.
It takes about 20 seconds of processor time. The results are those of seed 0.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

import fxf
from fxf.base.config import key
from fxf.base.weights import Params, Spec, Weight, fan_in
from fxf.layers.attention import Attention
from fxf.layers.layer import Context
from fxf.layers.linear import as_float32


@dataclasses.dataclass(frozen=True)
class Forgetting(Attention):
    """Attention that caches the logarithm of each token's gates, [B, H, T, 1], with its keys and values."""

    start: float = key(0.0, "initial bias of the gates; a larger one forgets less")
    ordered = True

    def spec(self) -> Spec:
        n_heads, constant = self.config.n_heads, jax.nn.initializers.constant
        gate = Weight((self.config.d_model, n_heads, 1), ("embed", "heads", "head_dim"), fan_in())
        bias = Weight((n_heads, 1), ("heads", "head_dim"), constant(self.start))
        return {**super().spec(), "forget": gate, "forget_bias": bias}

    def keys_values(self, params: Params, x_BTD: jax.Array, context: Context) -> tuple[Any, Context]:
        keys_values, context = super().keys_values(params, x_BTD, context)
        logs_BHT1 = jax.nn.log_sigmoid(as_float32(self.project(params, "forget", x_BTD)))
        return (*keys_values, logs_BHT1), context

    def read(
        self, params: Params, q_BHTK: jax.Array, memory: Any, bias: jax.Array, rng: jax.Array | None = None
    ) -> jax.Array:
        *keys_values, logs_BHC1 = memory
        logs_BHTC = jnp.where(bias > -jnp.inf, logs_BHC1.swapaxes(2, 3), 0)
        later_BHTC = jax.lax.cumsum(logs_BHTC, 3, reverse=True) - logs_BHTC
        return super().read(params, q_BHTK, keys_values, bias + later_BHTC, rng)


def get_config() -> ConfigDict:
    config = fxf.read_config("reversal:short")
    config.model.attention, config.model.positions = "forgetting:Forgetting", "none"
    config.model.layers = {"attention": {"start": 4.0}}
    return config
