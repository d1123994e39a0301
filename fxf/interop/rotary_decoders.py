"""How Llama, Mistral, Qwen and Gemma write positions, windows, biases and scales in a config.json of `transformers`."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from fxf.base.config import one_of
from fxf.base.errors import UserError
from fxf.interop.architecture import Architecture
from fxf.layers.kinds import stack_of

# How often frequencies turn in the sequences of training: those that turn less often than the first number are divided
# by the factor, and those that turn more often than the second stay. In fxf these numbers are fixed.
LLAMA3_FACTORS = {"low_freq_factor": 1, "high_freq_factor": 4}
# In transformers yarn multiplies cosines and sines by a factor, which in fxf is part of query_scale.
YARN_TURNS = {"beta_fast": 32, "beta_slow": 1, "mscale": None, "mscale_all_dim": None}
TRAINED = "original_max_position_embeddings"
LOCAL, GLOBAL = "sliding_attention", "full_attention"


class RotaryDecoder(Architecture):
    """The keys of positions and biases that all these classes have."""

    has_yarn = True  # whether rotary positions turn whole heads, whose scale they may so be part of

    def read(self, theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
        rope = rotary_keys(theirs) or self.defaults.get("rope_parameters", {})
        section = read_rotary(rope, theirs, where)
        yarn = section.get("rope_ramp", "llama3") != "llama3"
        if yarn and not (self.has_yarn and self.rotary_share == 1):
            raise UserError(f"{where}: rope_type: fxf has {self.name} without 'yarn'")
        if yarn and type(section["rope_factor"]) in (int, float):
            width = theirs.get("head_dim") or theirs["hidden_size"] // theirs["num_attention_heads"]
            section["query_scale"] = yarn_scale(width, section["rope_factor"], rope.get("attention_factor"))
        section |= read_windows(theirs, where, self.global_every) if self.global_every else {}
        return {**section, "attention_bias": "all"} if theirs["attention_bias"] else section

    def write(self, section: Any) -> dict[str, Any]:
        biased = section.attention_bias in ("all", "output")
        windows = write_windows(section, needed=True) if self.global_every else {}
        rotary = write_rotary(section)
        if "rope_parameters" in self.defaults:
            rotary["rope_scaling"] = rotary["rope_scaling"] or {"rope_type": "default"}
        return {**windows, **rotary, "attention_bias": self.config.get("attention_bias", biased)}


class Qwen(RotaryDecoder):
    """It may have windows in the blocks after the first ones."""

    def read(self, theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
        section, types = super().read(theirs, where), theirs.get("layer_types")
        if not theirs["use_sliding_window"] or theirs["sliding_window"] is None:
            return section
        if self.model_type == "qwen3_moe":  # a class without layer_types, which does not read max_window_layers
            return {**section, "window": theirs["sliding_window"]}
        if types is None and (n_first := theirs["max_window_layers"]) != 0:
            if type(n_first) is int and n_first >= theirs["num_hidden_layers"]:
                return section
            raise UserError(f"{where}: max_window_layers: fxf has windows in all blocks, so 0 here; got {n_first!r}")
        return {**section, **read_windows(theirs, where)}

    def write(self, section: Any) -> dict[str, Any]:
        n_first = 0 if section.window else section.n_layers
        windows = {"use_sliding_window": section.window > 0, "max_window_layers": n_first, **write_windows(section)}
        return {**super().write(section), **windows}


class Gemma(RotaryDecoder):
    """Its `gelu` is that of tanh: the first files name it so."""

    def read(self, theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
        of_tanh = {"activation": "gelu_tanh"} if theirs["hidden_act"] == "gelu" else {}
        return {**super().read(theirs, where), **of_tanh}


class Gemma2(RotaryDecoder):
    """It has a scale of queries."""

    has_yarn = False

    def read(self, theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
        return {**super().read(theirs, where), "query_scale": theirs["query_pre_attn_scalar"] ** -0.5}

    def write(self, section: Any) -> dict[str, Any]:
        usual_name = {"hidden_activation": "gelu_pytorch_tanh"} if section.activation == "gelu_tanh" else {}
        return {**super().write(section), **usual_name, "query_pre_attn_scalar": max(1, round(section.query_scale**-2))}


class Gemma3(Gemma2):
    """Its local blocks have rotary positions of their own."""

    def read(self, theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
        # Version 5 of the library has one set of `rope_parameters` for each kind of block. The keys of the older
        # `rope_scaling` are those of global blocks.
        sets = theirs.get("rope_parameters") or {}
        rope = {"rope_type": "default", **sets.get(GLOBAL, {}), **(theirs.get("rope_scaling") or {})}
        local = {"rope_theta": theirs["rope_local_base_freq"], **sets.get(LOCAL, {})}
        section = super().read({**theirs, "rope_scaling": rope}, where)
        found = read_rotary(local, {}, where)
        if "rope_factor" in found:
            raise UserError(f"{where}: rope_type: fxf has 'default' in {LOCAL}, got {local!r}")
        if not section.get("window"):  # no block is local
            return section
        if theirs.get("layer_types") is None:
            section["global_every"] = theirs["sliding_window_pattern"]
        every = section["global_every"] or theirs["num_hidden_layers"] + 1  # if all blocks are local
        return {**section, "global_every": every, "local_rope_theta": found["rope_theta"]}

    def write(self, section: Any) -> dict[str, Any]:
        return {**super().write(section), "rope_local_base_freq": section.local_rope_theta or section.rope_theta}


class SmolLM3(RotaryDecoder):
    """Some of its blocks have no positions: the layers `nope`."""

    def read(self, theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
        n_layers, every = theirs["num_hidden_layers"], theirs["no_rope_layer_interval"]
        turned = theirs.get("no_rope_layers") or [int((i + 1) % every != 0) for i in range(n_layers)]
        if all(turned):
            return super().read(theirs, where)
        blocks = pattern(["attention+feed_forward" if rotary else "nope+feed_forward" for rotary in turned])
        section = super().read(theirs, where)
        nope: dict[str, Any] = {"kind": "attention", "positions": "none"}
        if "query_scale" in section:  # that of YaRN, for what rotary positions turn
            nope["query_scale"] = 0.0
        return {**section, "blocks": blocks, "layers": {"nope": nope}}

    def write(self, section: Any) -> dict[str, Any]:
        turned = ["nope" not in getattr(block, "layers", {}) for block in stack_of(section).blocks]
        return {**super().write(section), "no_rope_layers": [int(each) for each in turned]}


class DeepSeek(RotaryDecoder):
    """The first blocks have a dense layer in place of the mixture."""

    has_yarn = False

    def read(self, theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
        n_dense = theirs["first_k_dense_replace"]
        blocks = "attention+feed_forward" if n_dense >= theirs["num_hidden_layers"] else "attention+moe"
        if 0 < n_dense < theirs["num_hidden_layers"]:
            blocks = f"{n_dense}*(attention+feed_forward); {blocks}"
        shared = {"d_shared": theirs["n_shared_experts"] * theirs["moe_intermediate_size"]}
        return {**super().read(theirs, where), "blocks": blocks, "layers": {"moe": shared}}

    def write(self, section: Any) -> dict[str, Any]:
        raise UserError(f"model.attention: fxf reads {self.name} and does not write it")


def pattern(kinds: Sequence[str]) -> str:
    """Returns `model.blocks` for the kinds of blocks over the depth, by the shortest part that repeats."""
    n = next(n for n in range(1, len(kinds) + 1) if all(kind == kinds[i % n] for i, kind in enumerate(kinds)))
    runs = ((kind, len(list(run))) for kind, run in itertools.groupby(kinds[:n]))
    return ", ".join(kind if times == 1 else f"{times}*({kind})" for kind, times in runs)


def rotary_keys(theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the keys of rotary positions that differ from the default, where all blocks have the same."""
    # Version 5 of the library writes `rope_parameters`, and where the older `rope_scaling` stands it reads this alone.
    return dict(theirs.get("rope_scaling") or theirs.get("rope_parameters") or {})


def read_rotary(rope: Mapping[str, Any], theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Returns the values of rotary positions in the `model` section.

    Args:
      rope: the keys of rotary positions.
      theirs: config.json, whose own keys stand for those that `rope` lacks.
    """
    rope = {**{key: theirs[key] for key in ("rope_theta", "partial_rotary_factor") if key in theirs}, **rope}
    kind = rope.get("rope_type", rope.get("type", "default"))
    one_of(kind, ("default", "dynamic", "linear", "llama3", "yarn"), f"{where}: rope_type")
    fixed: dict[str, dict[str, Any]] = {"llama3": LLAMA3_FACTORS, "yarn": YARN_TURNS}
    expected = {"partial_rotary_factor": 1, **fixed.get(kind, {})}
    for key, value in expected.items():
        if rope.get(key) not in (None, value):
            raise UserError(f"{where}: {key}: fxf has {value!r}, got {rope[key]!r}")
    section = {"rope_theta": rope["rope_theta"]}
    if kind not in ("default", "dynamic"):  # dynamic NTK scales sequences beyond max_position_embeddings alone
        section["rope_factor"] = rope.get("factor")
    if kind in ("llama3", "yarn") and section["rope_factor"] != 1:
        exact = kind == "yarn" and not rope.get("truncate", True)
        section |= {"rope_ramp": "yarn_exact" if exact else kind}
        lengths = (theirs.get(TRAINED), rope.get(TRAINED), theirs.get("max_position_embeddings"))
        section["rope_trained_len"] = next((length for length in lengths if length is not None), None)
    return section


def yarn_scale(head_dim: int, rope_factor: float, attention_factor: float | None = None) -> float:
    """Returns the query_scale of YaRN (Peng et al. 2023, equation 22), or with another factor of cosines and sines."""
    return head_dim**-0.5 * (attention_factor or 0.1 * math.log(rope_factor) + 1) ** 2


def write_rotary(section: Any) -> dict[str, Any]:
    """Returns the keys of rotary positions for a `model` section."""
    scaling: dict[str, Any] = {"rope_type": "linear", "factor": section.rope_factor}
    if section.rope_trained_len:
        scaling |= {"rope_type": "llama3", TRAINED: section.rope_trained_len}
        if section.rope_ramp == "llama3":
            scaling |= {key: float(value) for key, value in LLAMA3_FACTORS.items()}
        else:
            usual = section.query_scale == yarn_scale(section.head_width, section.rope_factor)
            factor = None if usual else (section.query_scale * section.head_width**0.5) ** 0.5
            scaling |= {"rope_type": "yarn", "attention_factor": factor, "truncate": section.rope_ramp == "yarn"}
    return {"rope_theta": section.rope_theta, "rope_scaling": scaling if section.rope_factor > 1 else None}


def read_windows(theirs: Mapping[str, Any], where: str, global_every: int = 0) -> dict[str, Any]:
    """Returns the window, and which blocks are global by `layer_types`, or else each `global_every`-th."""
    types, n_layers = theirs.get("layer_types"), theirs["num_hidden_layers"]
    if not theirs["sliding_window"]:
        return {}
    if types is None:
        return {"window": theirs["sliding_window"], "global_every": global_every}
    if LOCAL not in types:
        return {}
    every = types.index(GLOBAL) + 1 if GLOBAL in types else 0
    if types != _layer_types(n_layers, every) or every == 1:
        raise UserError(f"{where}: layer_types: fxf has {GLOBAL} in each n-th block alone; got {types!r}")
    return {"window": theirs["sliding_window"], "global_every": every}


def _layer_types(n_layers: int, global_every: int) -> list[str]:
    return [GLOBAL if global_every and (i + 1) % global_every == 0 else LOCAL for i in range(n_layers)]


def write_windows(section: Any, needed: bool = False) -> dict[str, Any]:
    """Returns the keys of windows for a `model` section.

    Args:
      needed: whether the class needs a window, even if no block has it.
    """
    types = _layer_types(section.n_layers, section.global_every if section.window else 1)
    return {"sliding_window": section.window or (section.max_len if needed else None), "layer_types": types}


CLASSES: dict[str, type[Architecture]] = {
    **{"decoder": RotaryDecoder, "gemma": Gemma, "gemma2": Gemma2, "gemma3_text": Gemma3},
    **{"qwen2": Qwen, "qwen3": Qwen, "qwen3_moe": Qwen, "smollm3": SmolLM3, "deepseek_v3": DeepSeek},
}
