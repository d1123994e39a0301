"""Layer scale: each layer's output is multiplied by a trained vector, which starts small, so that deep models train.

Touvron et al. 2021, "Going deeper with Image Transformers" (CaiT), arXiv 2103.17239.

fxf train --config=ideas/layer_scale --workdir=runs/layer_scale

Twelve blocks train without a warm-up: all reversals are right (exact_match 1). It takes half a minute, mostly for
compilation.
"""

import dataclasses
from typing import Any

import jax
from ml_collections import ConfigDict

import fxf
from fxf.base.config import key
from fxf.base.weights import Params, Spec, Weight
from fxf.layers.block import Block
from fxf.layers.layer import Context


@dataclasses.dataclass(frozen=True)
class LayerScale(Block):
    """X + λ ⊙ F(N X) for each layer F in turn, with a vector λ [D] for each."""

    first_scale: float = key(0.1, "initial λ; the paper has 0.1 up to 18 blocks, 1e-5 up to 24, then 1e-6", above=0)

    def spec(self) -> Spec:
        scale = Weight((self.config.d_model,), ("embed",), jax.nn.initializers.constant(self.first_scale))
        return {**super().spec(), **{f"{name}_scale": scale for name in self.layers}}

    def apply(self, params: Params, x: Any, context: Context) -> tuple[Any, Context]:
        for name in self.layers:
            y, context = self.layer(params, name, self.norm(params, name, x), context)
            scale = params[f"{name}_scale"].astype(x.dtype).reshape((1,) * (x.ndim - 1) + (-1,))
            x = x + self.dropout(name, scale * y, context)
        return x, context


def get_config() -> ConfigDict:
    config = fxf.read_config("reversal:example0")
    config.model.block = "layer_scale:LayerScale"
    config.model.n_layers, config.model.d_model, config.model.d_ff = 12, 64, 128
    config.optimizer.warmup_steps = 0
    config.model.scan_blocks = True
    return config
