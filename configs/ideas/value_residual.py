"""Value residual (ResFormer): the values of each block are mixed with those of the first one.

Zhou et al. 2024, "Value Residual Learning", arXiv 2410.17897.
V_n becomes a V_1 + b V_n with trained a and b, which start at 1/2. Information of the tokens then reaches deep blocks.

fxf train --config=ideas/value_residual --workdir=runs/value_residual

Reversal: exact_match 0.995 after 600 steps and a loss of 0.007; 0.989 and 0.009 with plain attention. Two blocks
have little to share; the paper's gain is for deep models.
It takes about 20 seconds of processor time. The results are those of seed 0.
"""

import dataclasses
from typing import Any

import jax
from ml_collections import ConfigDict

import fxf
from fxf.base.config import key
from fxf.base.weights import Params, Spec, Weight
from fxf.layers.attention import Attention
from fxf.layers.layer import Context


@dataclasses.dataclass(frozen=True)
class ValueResidual(Attention):
    """Attention whose first block leaves its values in the carry; later blocks mix theirs with them."""

    first: float = key(0.5, "initial a, the share of the first block's values")
    own: float = key(0.5, "initial b, the share of the block's own values")

    def spec(self) -> Spec:
        constant = jax.nn.initializers.constant
        shares = {name: Weight((1,), ("share",), constant(getattr(self, name))) for name in ("first", "own")}
        return {**super().spec(), **shares}

    def keys_values(self, params: Params, x_BTD: jax.Array, context: Context) -> tuple[Any, Context]:
        (k_BGTK, v_BGTK), context = super().keys_values(params, x_BTD, context)
        if "values" not in context.carry:
            n_tokens = context.places.positions.shape[1]
            values_RTGK = v_BGTK.swapaxes(1, 2).reshape(-1, n_tokens, *v_BGTK.shape[1::2])
            return (k_BGTK, v_BGTK), context.replace(carry={**context.carry, "values": values_RTGK})
        first_BGTK = context.by_prompt(context.carry["values"]).swapaxes(1, 2)
        shares = (params[name].astype(v_BGTK.dtype).reshape(1, 1, 1, 1) for name in ("first", "own"))
        return (k_BGTK, sum(a * v for a, v in zip(shares, (first_BGTK, v_BGTK), strict=True))), context


def get_config() -> ConfigDict:
    config = fxf.read_config("reversal:short")
    config.model.attention = "value_residual:ValueResidual"
    return config
