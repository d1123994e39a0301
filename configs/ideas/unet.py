"""U-net skips: the last blocks also read, in reverse order, what the first blocks have written.

Bao et al. 2022, "All are Worth Words: A ViT Backbone for Diffusion Models" (U-ViT), arXiv 2209.12152.

fxf train --config=ideas/unet --workdir=runs/unet

Five blocks learn all reversals (exact_match 1). It takes seconds, mostly for compilation.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
from ml_collections import ConfigDict

import fxf
from fxf.base.errors import UserError
from fxf.base.weights import Params, Spec, Weight, fan_in
from fxf.layers.config import TransformerConfig
from fxf.layers.layer import Context, Layer
from fxf.layers.linear import linear


def skips(context: Context) -> list[str]:
    """Returns the names of the streams that no later block has read yet, the newest last."""
    return sorted(name for name in context.carry if name.startswith("skip"))


@dataclasses.dataclass(frozen=True)
class Down:
    """Blocks whose output stream is also left for an `Up`."""

    part: Layer

    def spec(self) -> Spec:
        return self.part.spec()

    def apply(self, params: Params, x: Any, context: Context) -> tuple[Any, Context]:
        x, context = self.part.apply(params, x, context)
        return x, context.replace(carry={**context.carry, f"skip{len(skips(context)):03}": x})


@dataclasses.dataclass(frozen=True)
class Up:
    """Blocks that read W [X, S], where S is the newest stream that a `Down` left and no `Up` has read yet."""

    config: TransformerConfig
    part: Layer

    def spec(self) -> Spec:
        join = Weight((2 * self.config.d_model, self.config.d_model), ("mlp", "embed"), fan_in())
        return {"join": join, "part": self.part.spec()}

    def apply(self, params: Params, x: Any, context: Context) -> tuple[Any, Context]:
        carry, left = dict(context.carry), skips(context)
        if not left:
            raise UserError("model.blocks: Up reads the stream that a Down left, and none is left")
        skip = carry.pop(left[-1])
        x = linear(jnp.concatenate([x, skip], -1), params["join"])
        return self.part.apply(params["part"], x, context.replace(carry=carry))


def get_config() -> ConfigDict:
    config = fxf.read_config("reversal:example0")
    down, up = "unet:Down(attention+feed_forward)", "unet:Up(attention+feed_forward)"
    config.model.n_layers, config.model.blocks = 5, f"2*({down}), attention+feed_forward, 2*({up})"
    return config
