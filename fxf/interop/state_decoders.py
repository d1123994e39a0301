"""How Qwen3-Next and Mamba-2, whose layers have memories, write their blocks in a config.json of `transformers`."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from fxf.errors import UserError
from fxf.interop.architecture import Architecture
from fxf.interop.rotary_decoders import RotaryDecoder
from fxf.interop.rotary_keys import GLOBAL, rotary_keys
from fxf.layers.kinds import stack_of

LINEAR = "linear_attention"
LAYERS = {LINEAR: "delta+feed_forward", GLOBAL: "attention+feed_forward"}
# Keys of `model.layers.delta` and of `model.layers.mamba2`, with their partners in config.json.
DELTA = {
    **{"n_heads": "linear_num_value_heads", "n_key_heads": "linear_num_key_heads", "key_dim": "linear_key_head_dim"},
    **{"value_dim": "linear_value_head_dim", "n_taps": "linear_conv_kernel_dim"},
}
MAMBA2 = {"n_key_heads": "n_groups", "key_dim": "state_size", "value_dim": "head_dim", "n_taps": "conv_kernel"}
SHARE = "partial_rotary_factor"


class Qwen3Next(RotaryDecoder):
    """Its blocks have a gated delta rule or gated attention, of which rotary positions turn a share of each head."""

    def read(self, theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
        rope = rotary_keys(theirs, where)
        if (share := rope.get(SHARE, theirs[SHARE])) != self.rotary_share:
            raise UserError(f"{where}: {SHARE}: fxf has {self.name} with {self.rotary_share}, got {share!r}")
        section = super().read({**theirs, "rope_scaling": {"rope_type": "default", **rope, SHARE: 1}}, where)
        n_layers, every = theirs["num_hidden_layers"], theirs["full_attention_interval"]
        types = theirs.get("layer_types") or [LINEAR if (i + 1) % every else GLOBAL for i in range(n_layers)]
        if not isinstance(types, list) or len(types) != n_layers or not {*LAYERS}.issuperset(map(str, types)):
            raise UserError(f"{where}: layer_types: expected {n_layers} of {' and '.join(LAYERS)}, got {types!r}")
        if theirs["num_experts"] and len(theirs.get("mlp_only_layers") or ()) < n_layers:
            raise UserError(f"{where}: num_experts: fxf has {self.name} without experts, got {theirs['num_experts']!r}")
        # The keys of attention's heads do not hold for those of a delta rule.
        delta = {"n_kv_heads": 0, "head_dim": theirs["linear_value_head_dim"], **_own(DELTA, theirs, where)}
        layers = {"delta": delta, "attention": {"rotary_share": self.rotary_share}}
        return {**section, "blocks": pattern([LAYERS[kind] for kind in types]), "layers": layers}

    def write(self, section: Any) -> dict[str, Any]:
        blocks = [block.layers for block in stack_of(section).blocks if hasattr(block, "layers")]
        kinds = {kind: kinds for kinds, kind in LAYERS.items()}
        types = [kinds.get("+".join(layers)) for layers in blocks]
        if len(types) < section.n_layers or None in types or LINEAR not in types:
            raise UserError(
                f"model.blocks: {self.name} has blocks of {' and '.join(LAYERS.values())}, one of each at least"
            )
        delta = blocks[types.index(LINEAR)]["delta"]
        values = {key: getattr(delta, key) for key in ("n_key_heads", "key_dim", "value_dim", "n_taps")}
        values["n_heads"] = delta.config.n_heads
        return {
            **super().write(section),
            **{DELTA[key]: value for key, value in values.items()},
            SHARE: self.rotary_share,
            "layer_types": types,
            **{"num_experts": 0, "mlp_only_layers": list(range(section.n_layers))},
        }


class Mamba2(Architecture):
    """A block has one layer. Its heads are as many as the section has, and as wide."""

    def read(self, theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
        limits = theirs.get("time_step_limit") or [0.0, math.inf]
        if [float(limit) for limit in limits] != [0.0, math.inf]:
            raise UserError(f"{where}: time_step_limit: fxf has none, got {limits!r}")
        return {"layers": {"mamba2": _own(MAMBA2, theirs, where)}, "final_bias": bool(theirs["tie_word_embeddings"])}

    def write(self, section: Any) -> dict[str, Any]:
        layer = getattr(stack_of(section).blocks[0], "layers", {}).get("mamba2")
        if layer is None:
            raise UserError(f"model.blocks: {self.name} has blocks of mamba2, got {section.blocks!r}")
        written = {theirs: getattr(layer, key) for key, theirs in MAMBA2.items()}
        expand = section.n_heads * layer.value_dim / section.d_model
        return {**written, "expand": int(expand) if expand == int(expand) else expand}


def _own(names: Mapping[str, str], theirs: Mapping[str, Any], where: str) -> dict[str, int]:
    """Returns a layer's own keys. Raises a UserError if one is no positive int."""
    for name in names.values():
        if type(theirs[name]) is not int or theirs[name] < 1:
            raise UserError(f"{where}: {name}: expected a positive int, got {theirs[name]!r}")
    return {key: theirs[name] for key, name in names.items()}


def pattern(kinds: Sequence[str]) -> str:
    """Returns `model.blocks` for the kinds of blocks over the depth, by the shortest part that repeats."""
    n = next(n for n in range(1, len(kinds) + 1) if all(kind == kinds[i % n] for i, kind in enumerate(kinds)))
    runs = ((kind, len(list(run))) for kind, run in itertools.groupby(kinds[:n]))
    return ", ".join(kind if times == 1 else f"{times}*({kind})" for kind, times in runs)


CLASSES: dict[str, type[Architecture]] = {"qwen3_next": Qwen3Next, "mamba2": Mamba2}
