"""The blocks of Qwen3-Next and Mamba-2, which have recurrent layers, in a config.json of `transformers`."""

import math
from collections.abc import Mapping
from typing import Any

from fxf.base.errors import UserError
from fxf.interop.architecture import Architecture
from fxf.interop.rotary_decoders import GLOBAL, MIXERS, RotaryDecoder, layers_of, pattern
from fxf.layers.kinds import layer_of

# The ways `transformers` writes that Mamba-2's time step has no limits. Infinity is not JSON, and is read as null.
NO_LIMITS = ([0.0, None], [0.0, math.inf], [0.0, {"__float__": "Infinity"}])


class Qwen3Next(RotaryDecoder):
    """Blocks with a gated delta rule or gated attention, and a mixture of experts or a dense layer.

    Rotary positions rotate a share of each head.
    """

    def read(self, theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
        section = super().read(theirs, where)
        n_layers, every = theirs["num_hidden_layers"], theirs["full_attention_interval"]
        types = theirs.get("layer_types")
        if types is None:
            types = ["linear_attention" if (i + 1) % every else GLOBAL for i in range(n_layers)]
        dense = (theirs.get("mlp_only_layers") or []) if theirs["num_experts"] else range(n_layers)
        kinds = [f"{MIXERS[kind]}+{'feed_forward' if i in dense else 'moe'}" for i, kind in enumerate(types)]
        # The delta rule has its own number of value heads, of which attention's n_kv_heads need not be a divisor.
        uneven = theirs["linear_num_value_heads"] % theirs["num_key_value_heads"]
        return {**section, "blocks": pattern(kinds), "layers": {"delta": {"n_kv_heads": 0}} if uneven else {}}

    def write(self, section: Any) -> dict[str, Any]:
        blocks = layers_of(section)
        return {
            **super().write(section),
            **({} if any("moe" in layers for layers in blocks) else {"num_experts": 0}),
            "layer_types": ["linear_attention" if "delta" in layers else GLOBAL for layers in blocks],
            "mlp_only_layers": [i for i, layers in enumerate(blocks) if "moe" not in layers],
        }


class Mamba2(Architecture):
    """Blocks of one layer, with the number and width of heads of the section."""

    def read(self, theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
        limits = theirs.get("time_step_limit") or NO_LIMITS[0]
        if limits not in NO_LIMITS:
            raise UserError(f"{where}: time_step_limit: fxf has none, got {limits!r}")
        return {}

    def write(self, section: Any) -> dict[str, Any]:
        layer: Any = layer_of(section, "mamba2")
        width = section.n_heads * layer.value_dim
        if width == 0 or width % section.d_model:
            what = f"a multiple of model.d_model / model.n_heads, {section.d_model / section.n_heads:.4g}"
            raise UserError(f"model.layers.mamba2.value_dim: {self.name} has {what}, got {width // section.n_heads}")
        return {"expand": width // section.d_model}
