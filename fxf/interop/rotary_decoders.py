"""How Llama, Mistral, Qwen and Gemma write positions, windows, biases and scales in a config.json of `transformers`."""

from collections.abc import Mapping
from typing import Any

from fxf.errors import UserError
from fxf.interop.architecture import Architecture
from fxf.interop.rotary_keys import (
    GLOBAL,
    LOCAL,
    object_at,
    read_rotary,
    read_windows,
    rotary_keys,
    write_rotary,
    write_windows,
)

CAPS = {"attention_softcap": "attn_logit_softcapping", "logit_softcap": "final_logit_softcapping"}


class RotaryDecoder(Architecture):
    """The keys of positions and biases that all these classes have."""

    def read(self, theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
        section = read_rotary(rotary_keys(theirs, where), theirs, where)
        section["final_bias"] = bool(theirs["tie_word_embeddings"])
        return {**section, "attention_bias": "all"} if theirs["attention_bias"] else section

    def write(self, section: Any) -> dict[str, Any]:
        biased = section.attention_bias in ("all", "output")
        return {**write_rotary(section), "attention_bias": self.config.get("attention_bias", biased)}


class Llama(RotaryDecoder):
    """Its feed-forward layers may have biases."""

    def read(self, theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
        return {**super().read(theirs, where), "feed_forward_bias": theirs["mlp_bias"]}

    def write(self, section: Any) -> dict[str, Any]:
        return {**super().write(section), "mlp_bias": section.feed_forward_bias}


class Mistral(RotaryDecoder):
    """It has one window for all blocks."""

    def read(self, theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
        return {**super().read(theirs, where), "window": theirs["sliding_window"] or 0}

    def write(self, section: Any) -> dict[str, Any]:
        return {**super().write(section), "sliding_window": section.window or None}


class Qwen(RotaryDecoder):
    """It may have windows in the blocks after the first ones."""

    def read(self, theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
        section, types = super().read(theirs, where), theirs.get("layer_types")
        if not theirs["use_sliding_window"] or theirs["sliding_window"] is None:
            if isinstance(types, list) and LOCAL in types:
                raise UserError(f"{where}: layer_types: {LOCAL} without use_sliding_window and a sliding_window")
            return section
        if types is None and (n_first := theirs["max_window_layers"]) != 0:
            if type(n_first) is int and n_first >= theirs["num_hidden_layers"]:
                return section
            raise UserError(f"{where}: max_window_layers: fxf has windows in all blocks, so 0 here; got {n_first!r}")
        return {**section, **read_windows(theirs, where)}

    def write(self, section: Any) -> dict[str, Any]:
        n_first = 0 if section.window else section.n_layers
        windows = {"use_sliding_window": section.window > 0, "max_window_layers": n_first, **write_windows(section)}
        return {**super().write(section), **windows}


class Gemma2(RotaryDecoder):
    """It has windows in every other block, a scale of queries, and caps of scores and logits."""

    def read(self, theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
        scalar = theirs["query_pre_attn_scalar"]
        if type(scalar) not in (int, float) or not scalar > 0:
            raise UserError(f"{where}: query_pre_attn_scalar: expected a positive number, got {scalar!r}")
        section = {**super().read(theirs, where), "query_scale": scalar**-0.5}
        section |= read_windows(theirs, where, global_every=2) if theirs["sliding_window"] else {}
        return section | {key: theirs[name] or 0.0 for key, name in CAPS.items()}

    def write(self, section: Any) -> dict[str, Any]:
        usual_name = {"hidden_activation": "gelu_pytorch_tanh"} if section.activation == "gelu_tanh" else {}
        return {
            **super().write(section),
            **write_windows(section),
            "sliding_window": section.window or section.max_len,  # the class needs one, even if no block has it
            **usual_name,
            "query_pre_attn_scalar": max(1, round(section.query_scale**-2)),
            **{name: getattr(section, key) or None for key, name in CAPS.items()},
        }


class Gemma3(Gemma2):
    """Its local blocks have rotary positions of their own."""

    def read(self, theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
        # Version 5 of the library has one set of `rope_parameters` for each kind of block. The keys of the older
        # `rope_scaling` are those of global blocks.
        sets = object_at(theirs, "rope_parameters", where)
        rope = {"rope_type": "default", **object_at(sets, GLOBAL, where), **object_at(theirs, "rope_scaling", where)}
        local = {"rope_theta": theirs["rope_local_base_freq"], **object_at(sets, LOCAL, where)}
        section = super().read({**theirs, "rope_scaling": rope}, where)
        found = read_rotary(local, {}, where)
        if "rope_factor" in found:
            kind = local.get("rope_type", local.get("type"))
            raise UserError(f"{where}: rope_type: fxf has 'default' in {LOCAL}, got {kind!r}")
        if not section.get("window"):  # no block is local
            return section
        if theirs.get("layer_types") is None:
            section["global_every"] = theirs["sliding_window_pattern"]
        every = section["global_every"] or theirs["num_hidden_layers"] + 1  # if all blocks are local
        return {**section, "global_every": every, "local_rope_theta": found["rope_theta"]}

    def write(self, section: Any) -> dict[str, Any]:
        return {**super().write(section), "rope_local_base_freq": section.local_rope_theta or section.rope_theta}


class Qwen3MoE(RotaryDecoder):
    """It may have one window for all blocks, if a key says so."""

    def read(self, theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
        window = theirs["sliding_window"] if theirs["use_sliding_window"] else None
        # Version 5 of the library has another name.
        experts = {"n_experts": theirs.get("num_local_experts", theirs["num_experts"])}
        return {**super().read(theirs, where), "window": window or 0, "layers": {"feed_forward": experts}}

    def write(self, section: Any) -> dict[str, Any]:
        window = {"use_sliding_window": section.window > 0, "sliding_window": section.window or None}
        return {**super().write(section), **window}


class OLMoE(RotaryDecoder):
    """It may clip queries, keys and values, which fxf does not."""

    def read(self, theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
        if theirs.get("clip_qkv") is not None:
            raise UserError(f"{where}: clip_qkv: fxf has {self.name} with null, got {theirs['clip_qkv']!r}")
        return super().read(theirs, where)


class DeepSeek(RotaryDecoder):
    """The first blocks have a dense layer in place of the mixture."""

    def read(self, theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
        n_dense = theirs["first_k_dense_replace"]
        blocks = "attention+feed_forward" if n_dense >= theirs["num_hidden_layers"] else "attention+moe"
        if 0 < n_dense < theirs["num_hidden_layers"]:
            blocks = f"{n_dense}*(attention+feed_forward); {blocks}"
        shared = {"d_shared": theirs["n_shared_experts"] * theirs["moe_intermediate_size"]}
        return {**super().read(theirs, where), "blocks": blocks, "layers": {"moe": shared}}

    def write(self, section: Any) -> dict[str, Any]:
        raise UserError(f"model.attention: fxf reads {self.name} and does not write it")


# By the `model_type` of config.json.
CLASSES: dict[str, type[Architecture]] = {
    **{"llama": Llama, "mistral": Mistral, "qwen2": Qwen, "qwen3": Qwen},
    **{"gemma2": Gemma2, "gemma3_text": Gemma3, "mixtral": Mistral, "qwen3_moe": Qwen3MoE, "olmoe": OLMoE},
    **{"deepseek_v2": DeepSeek, "deepseek_v3": DeepSeek},
}
