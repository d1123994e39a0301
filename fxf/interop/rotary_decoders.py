"""Positions, windows, biases and scales of Llama, Mistral, Qwen, Gemma and others in `transformers`' config.json."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from fxf.base.config import one_of
from fxf.base.errors import UserError
from fxf.interop.architecture import Architecture
from fxf.layers.kinds import stack_of

# Numbers of rotations within the training length: frequencies with fewer than the lower number are divided by the
# factor, those with more than the higher number are unchanged. fxf has only these values.
LLAMA3_FACTORS = {"low_freq_factor": 1, "high_freq_factor": 4}
YARN_TURNS = {"beta_fast": 32, "beta_slow": 1}
LONGROPE = {"attention_factor": None}  # fxf computes it from the training length and the factor
TRAINED, SHARE = "original_max_position_embeddings", "partial_rotary_factor"
LOCAL, GLOBAL = "sliding_attention", "full_attention"
# fxf's layers by the names of their kinds in `transformers`.
MIXERS = {"linear_attention": "delta", GLOBAL: "attention", "global": "attention", "local": "local"}


class RotaryDecoder(Architecture):
    """A decoder with rotary positions: the keys of positions, windows and biases that these classes share."""

    def read(self, theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
        # Version 5 of the library writes `rope_parameters`, but reads the older `rope_scaling` alone if it is present.
        rope = dict(theirs.get("rope_scaling") or theirs.get("rope_parameters") or {})
        rope = rope or self.defaults.get("rope_parameters", {})
        section = self.read_rotary(rope, theirs, where)
        if section.get("rope_ramp", "").startswith("yarn") and type(section["rope_factor"]) in (int, float):
            if section.get("rotary_share", 1) != 1 or "query_pre_attn_scalar" in theirs:
                raise UserError(f"{where}: rope_type: fxf has {self.name} without 'yarn'")
            section["query_scale"] = self.yarn_scale(theirs, rope, section["rope_factor"], where)
        section |= read_windows(theirs, where, self.global_every) if self.global_every else {}
        return {**section, "attention_bias": self.biased[1]} if theirs[self.biased[0]] else section

    def write(self, section: Any) -> dict[str, Any]:
        key, kind = self.biased
        windows = write_windows(section, needed=True) if self.global_every else {}
        rotary = write_rotary(section)
        if "rope_parameters" in self.defaults:
            rotary["rope_scaling"] = rotary["rope_scaling"] or {"rope_type": "default"}
        return {**windows, **rotary, key: self.config.get(key, section.attention_bias in (kind, "output"))}

    def yarn_scale(self, theirs: Mapping[str, Any], rope: Mapping[str, Any], factor: float, where: str) -> float:
        """Returns the query_scale of YaRN, given the keys of rotary positions and their `factor`."""
        width = theirs.get("head_dim") or theirs["hidden_size"] // theirs["num_attention_heads"]
        return width**-0.5 * read_amplitude(rope, factor) ** 2

    def read_rotary(self, rope: Mapping[str, Any], theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
        """Returns the keys of rotary positions of the `model` section.

        Args:
          rope: the keys of rotary positions in config.json.
          theirs: config.json. Its top-level keys replace those that `rope` lacks.
        """
        rope = {**{key: theirs[key] for key in ("rope_theta", SHARE) if key in theirs}, **rope}
        kind = rope.get("rope_type", rope.get("type", "default"))
        longrope = ("longrope",) if TRAINED in self.defaults else ()
        one_of(kind, ("default", "dynamic", "linear", "llama3", "yarn", *longrope), f"{where}: rope_type")
        fixed: dict[str, dict[str, Any]] = {"llama3": LLAMA3_FACTORS, "yarn": YARN_TURNS, "longrope": LONGROPE}
        whole = {} if "rotary_share" in self.keys else {SHARE: 1}
        for key, value in {**whole, **fixed.get(kind, {})}.items():
            if rope.get(key) not in (None, value):
                raise UserError(f"{where}: {key}: fxf has {value!r}, got {rope[key]!r}")
        section = {"rope_theta": rope["rope_theta"], **({} if whole else {"rotary_share": rope[SHARE]})}
        lengths = (theirs.get(TRAINED), rope.get(TRAINED), theirs.get("max_position_embeddings"))
        trained = next((length for length in lengths if length is not None), None)
        if kind == "longrope":
            factors = (",".join(str(float(x)) for x in rope[f"{name}_factor"]) for name in ("short", "long"))
            section |= {"rope_ramp": kind, "rope_factors": ";".join(factors), "rope_trained_len": trained}
            factor = rope.get("factor") or theirs["max_position_embeddings"] / trained
            return {**section, "rope_factor": factor, "max_len": trained}
        if kind not in ("default", "dynamic"):  # dynamic NTK scales only sequences beyond max_position_embeddings
            section["rope_factor"] = rope.get("factor")
        if kind in ("llama3", "yarn") and section["rope_factor"] != 1:
            exact = kind == "yarn" and not rope.get("truncate", True)
            section |= {"rope_ramp": "yarn_exact" if exact else kind, "rope_trained_len": trained}
        return section


class Qwen(RotaryDecoder):
    """A class that may have windows in the blocks after the first ones."""

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


class Gemma2(RotaryDecoder):
    """A class with a key for the scale of queries."""

    def read(self, theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
        return {**super().read(theirs, where), "query_scale": theirs["query_pre_attn_scalar"] ** -0.5}

    def write(self, section: Any) -> dict[str, Any]:
        usual_name = {"hidden_activation": "gelu_pytorch_tanh"} if section.activation == "gelu_tanh" else {}
        return {**super().write(section), **usual_name, "query_pre_attn_scalar": max(1, round(section.query_scale**-2))}


class Gemma3(Gemma2):
    """A class whose local blocks have their own rotary frequencies."""

    def read(self, theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
        # Version 5 of the library has a set of `rope_parameters` for each kind of block. The older `rope_scaling` is
        # that of global blocks.
        sets = theirs.get("rope_parameters") or {}
        rope = {"rope_type": "default", **sets.get(GLOBAL, {}), **(theirs.get("rope_scaling") or {})}
        local = {"rope_theta": theirs["rope_local_base_freq"], **sets.get(LOCAL, {})}
        section = super().read({**theirs, "rope_scaling": rope}, where)
        local_section = self.read_rotary(local, {}, where)
        if "rope_factor" in local_section:
            raise UserError(f"{where}: rope_type: fxf has 'default' in {LOCAL}, got {local!r}")
        if not section.get("window"):  # no block is local
            return section
        if theirs.get("layer_types") is None:
            section["global_every"] = theirs["sliding_window_pattern"]
        every = section["global_every"] or theirs["num_hidden_layers"] + 1  # if all blocks are local
        return {**section, "global_every": every, "local_rope_theta": local_section["rope_theta"]}

    def write(self, section: Any) -> dict[str, Any]:
        return {**super().write(section), "rope_local_base_freq": section.local_rope_theta or section.rope_theta}


class SmolLM3(RotaryDecoder):
    """A class with some blocks without positions: the layers `nope`."""

    def read(self, theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
        n_layers, every = theirs["num_hidden_layers"], theirs["no_rope_layer_interval"]
        if LOCAL in (theirs.get("layer_types") or []):
            raise UserError(f"{where}: layer_types: fxf has {self.name} with {GLOBAL}, got {theirs['layer_types']!r}")
        turned = theirs.get("no_rope_layers") or [int((i + 1) % every != 0) for i in range(n_layers)]
        blocks = pattern(["attention+feed_forward" if rotary else "nope+feed_forward" for rotary in turned])
        section = super().read(theirs, where)
        # YaRN's query_scale is only for layers with rotary positions.
        nope = {"kind": "attention", "positions": "none", **({"query_scale": 0.0} if "query_scale" in section else {})}
        return {**section, "blocks": blocks, "layers": {} if all(turned) else {"nope": nope}}

    def write(self, section: Any) -> dict[str, Any]:
        return {**super().write(section), "no_rope_layers": [int("nope" not in block) for block in layers_of(section)]}


class DeepSeek(RotaryDecoder):
    """A class with dense layers in the first blocks, where YaRN scales whole queries and keys."""

    def read(self, theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
        n_dense = theirs["first_k_dense_replace"]
        blocks = "attention+feed_forward" if n_dense >= theirs["num_hidden_layers"] else "attention+moe"
        if 0 < n_dense < theirs["num_hidden_layers"]:
            blocks = f"{n_dense}*(attention+feed_forward); {blocks}"
        moe = {"d_shared": theirs["n_shared_experts"] * theirs.get("moe_intermediate_size", 0)}
        if "topk_method" in self.defaults:  # only DeepSeek-V2 reads it
            methods = ("greedy", "group_limited_greedy")
            if one_of(theirs["topk_method"], methods, f"{where}: topk_method") == "greedy":
                moe |= {"expert_groups": 1, "best_groups": 1}
        return {**super().read(theirs, where), "blocks": blocks, "layers": {"moe": moe}}

    def write(self, section: Any) -> dict[str, Any]:
        raise UserError(f"model.attention: fxf reads {self.name} and does not write it")

    def yarn_scale(self, theirs: Mapping[str, Any], rope: Mapping[str, Any], factor: float, where: str) -> float:
        if read_amplitude(rope, factor) != 1:  # it would scale only the rotary part of each head
            raise UserError(f"{where}: mscale: fxf has {self.name} with that of mscale_all_dim; got {rope!r}")
        width = theirs["qk_nope_head_dim"] + theirs["qk_rope_head_dim"]
        return width**-0.5 * yarn_amplitude(factor, rope.get("mscale_all_dim") or 0) ** 2


def pattern(kinds: Sequence[str]) -> str:
    """Returns `model.blocks` for the kinds of all blocks in order: their shortest period, with repeats counted."""
    n = next(n for n in range(1, len(kinds) + 1) if all(kind == kinds[i % n] for i, kind in enumerate(kinds)))
    runs = ((kind, len(list(run))) for kind, run in itertools.groupby(kinds[:n]))
    return ", ".join(kind if times == 1 else f"{times}*({kind})" for kind, times in runs)


def layers_of(section: Any) -> list[list[str]]:
    """Returns the names of the layers of each block."""
    return [[*getattr(block, "layers", {})] for block in stack_of(section).blocks]


def yarn_amplitude(factor: float, mscale: float = 1) -> float:
    """Returns the factor by which YaRN multiplies cosines and sines (Peng et al. 2023, equation 22)."""
    return 0.1 * mscale * math.log(factor) + 1


def read_amplitude(rope: Mapping[str, Any], factor: float) -> float:
    """Returns YaRN's amplitude for the keys of rotary positions in config.json."""
    if rope.get("attention_factor") or not (rope.get("mscale") and rope.get("mscale_all_dim")):
        return rope.get("attention_factor") or yarn_amplitude(factor)
    return yarn_amplitude(factor, rope["mscale"]) / yarn_amplitude(factor, rope["mscale_all_dim"])


def write_rotary(section: Any) -> dict[str, Any]:
    """Returns the keys of rotary positions in config.json for a `model` section."""
    trained, factor, keys = section.rope_trained_len, section.rope_factor, {"rope_theta": section.rope_theta}
    scaling: dict[str, Any] = {"rope_type": "linear", "factor": factor}
    if section.rope_ramp == "longrope":
        short, long = ([float(number) for number in part.split(",")] for part in section.rope_factors.split(";"))
        scaling = {"rope_type": "longrope", "short_factor": short, "long_factor": long}
        keys |= {TRAINED: trained, "max_position_embeddings": round(factor * trained)}
    elif trained:
        scaling |= {"rope_type": "llama3", TRAINED: trained}
        if section.rope_ramp == "llama3":
            scaling |= {key: float(value) for key, value in LLAMA3_FACTORS.items()}
        else:
            usual = section.query_scale == section.head_width**-0.5 * yarn_amplitude(factor) ** 2
            amplitude = None if usual else (section.query_scale * section.head_width**0.5) ** 0.5
            scaling |= {"rope_type": "yarn", "attention_factor": amplitude, "truncate": section.rope_ramp == "yarn"}
    return {**keys, "rope_scaling": scaling if factor > 1 else None}


def read_windows(theirs: Mapping[str, Any], where: str, global_every: int = 0) -> dict[str, Any]:
    """Returns `window` and `global_every`, the latter from `layer_types` if config.json has them."""
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
    """Returns the keys of windows in config.json for a `model` section.

    Args:
      needed: whether the class needs a window even if no block uses it.
    """
    types = _layer_types(section.n_layers, section.global_every if section.window else 1)
    return {"sliding_window": section.window or (section.max_len if needed else None), "layer_types": types}


class GPTNeo(Architecture):
    """A class with windows in some blocks: the layers `local`."""

    def read(self, theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
        types = theirs.get("attention_layers") or [kind for kinds, n in theirs["attention_types"] for kind in kinds * n]
        blocks = pattern([f"{MIXERS[kind]}+feed_forward" for kind in types])
        return {"blocks": blocks, "layers": {"local": {"kind": "attention"}}}

    def write(self, section: Any) -> dict[str, Any]:
        return {"attention_types": [[["local" if "local" in block else "global"], 1] for block in layers_of(section)]}
