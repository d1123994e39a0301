"""Attention with a gate on what each head reads (Qiu et al. 2025, arXiv 2505.06708), as Qwen3-Next has it."""

import dataclasses

import jax
import jax.numpy as jnp

from fxf.base.config import key
from fxf.base.weights import Params, Spec, Weight, fan_in
from fxf.layers.attention import Attention


@dataclasses.dataclass(frozen=True)
class GatedAttention(Attention):
    """Attention whose heads are multiplied by σ(x gate), before the last map.

    Attributes:
      rotary_share: rotary positions turn the first of a head's numbers, so many of them.
    """

    rotary_share: float = key(1.0, "share of a head's width that rotary positions turn", above=0)

    def spec(self) -> Spec:
        config = self.config
        shape = (config.d_model, config.n_heads, config.head_width)
        return {**super().spec(), "gate": Weight(shape, ("embed", "heads", "head_dim"), fan_in())}

    def output(self, params: Params, heads_BHTK: jax.Array, x_BTD: jax.Array) -> jax.Array:
        gate_BHTK = jax.nn.sigmoid(self.project(params, "gate", x_BTD))
        return super().output(params, heads_BHTK * gate_BHTK, x_BTD)

    def turned(self, x_BHTK: jax.Array, positions_BT: jax.Array) -> jax.Array:
        n_turned = int(x_BHTK.shape[-1] * self.rotary_share)
        turned = super().turned(x_BHTK[..., :n_turned], positions_BT)
        return jnp.concatenate([turned, x_BHTK[..., n_turned:]], -1)
