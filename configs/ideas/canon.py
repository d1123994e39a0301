"""Canon layers: a short causal convolution lets a token read its neighbours before each layer of a block does.

Allen-Zhu 2025, "Physics of Language Models: Part 4.1, Architecture Design and the Magic of Canon Layers",
arXiv 2512.17351; these are its Canon-A, before attention, and Canon-C, before the feed-forward layer.

fxf train --config=ideas/canon --workdir=runs/canon

Without any positions all reversals are right (exact_match 1; without Canon layers 0.9). It takes seconds, mostly for
compilation.
"""

import dataclasses

import jax
from ml_collections import ConfigDict

import fxf
from fxf.base.config import key
from fxf.base.weights import Params, Spec
from fxf.layers.block import PreNorm
from fxf.layers.layer import Context
from fxf.layers.memory_layers import causal_convolution, taps_weight


@dataclasses.dataclass(frozen=True)
class Canon(PreNorm):
    """X + F(C(N X)) for each layer F in turn, where C x_t = x_t + Σ w_i ⊙ x_{t-i} for i = 0 … n - 1."""

    taps: int = key(4, "number n of tokens that a convolution reads", minimum=2)

    def spec(self) -> Spec:
        taps = taps_weight(self.taps, self.config.d_model)
        return {**super().spec(), **{f"{name}_canon": taps for name in self.layers}}

    def layer(self, params: Params, name: str, x: jax.Array, context: Context) -> tuple[jax.Array, Context]:
        tail = context.cache.get(f"{name}_canon") if context.cache else None
        near, tail = causal_convolution(x, params[f"{name}_canon"], context, tail)
        y, context = super().layer(params, name, x + near, context)
        if context.cache is None:
            return y, context
        return y, context.replace(cache={**context.cache, f"{name}_canon": tail})


def get_config() -> ConfigDict:
    config = fxf.read_config("reversal:example0")
    config.model.block, config.model.positions = "canon:Canon", "none"
    return config
