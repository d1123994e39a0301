"""The keys of rotary positions and of windows in a config.json of `transformers`."""

from collections.abc import Mapping
from typing import Any

from fxf.config import one_of
from fxf.errors import UserError

# How often frequencies turn in the sequences of training: those that turn less often than the first number are divided
# by the factor, and those that turn more often than the second stay. In fxf these numbers are fixed.
LLAMA3_FACTORS = {"low_freq_factor": 1, "high_freq_factor": 4}
TRAINED = "original_max_position_embeddings"
LOCAL, GLOBAL = "sliding_attention", "full_attention"


def rotary_keys(theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Returns the keys of rotary positions that differ from the default, where all blocks have the same."""
    # Version 5 of the library writes `rope_parameters`, and where the older `rope_scaling` stands it reads this alone.
    rope = object_at(theirs, "rope_scaling", where) or object_at(theirs, "rope_parameters", where)
    if any(isinstance(value, Mapping) for value in rope.values()):
        raise UserError(f"{where}: rope_parameters: fxf has one set for all blocks of this class; got {rope!r}")
    return dict(rope)


def read_rotary(rope: Mapping[str, Any], theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Returns the values of rotary positions in the `model` section.

    Args:
      rope: the keys of rotary positions.
      theirs: config.json, whose own keys stand for those that `rope` lacks.
    """
    rope = {**{key: theirs[key] for key in ("rope_theta", "partial_rotary_factor") if key in theirs}, **rope}
    kind = rope.get("rope_type", rope.get("type", "default"))
    one_of(kind, ("default", "linear", "llama3"), f"{where}: rope_type")
    if rope.get("type", kind) != kind:
        raise UserError(f"{where}: type: expected {kind!r}, which rope_type says, got {rope['type']!r}")
    expected = {"partial_rotary_factor": 1, **(LLAMA3_FACTORS if kind == "llama3" else {})}
    for key, value in expected.items():
        if rope.get(key) not in (None, value):
            raise UserError(f"{where}: {key}: fxf has {value!r}, got {rope[key]!r}")
    section = {"rope_theta": rope["rope_theta"]}
    if kind != "default":
        section["rope_factor"] = rope.get("factor")
    if kind == "llama3" and section["rope_factor"] != 1:
        lengths = (theirs.get(TRAINED), rope.get(TRAINED), theirs.get("max_position_embeddings"))
        section["rope_trained_len"] = next((length for length in lengths if length is not None), None)
    return section


def write_rotary(section: Any) -> dict[str, Any]:
    """Returns the keys of rotary positions for a `model` section."""
    scaling = {"rope_type": "linear", "factor": section.rope_factor}
    if section.rope_trained_len:
        trained = {TRAINED: section.rope_trained_len}
        scaling = {**scaling, "rope_type": "llama3", **trained, **{k: float(v) for k, v in LLAMA3_FACTORS.items()}}
    return {"rope_theta": section.rope_theta, "rope_scaling": scaling if section.rope_factor > 1 else None}


def object_at(theirs: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    """Returns the object of keys at a key of config.json, empty if it is absent or null."""
    found = theirs.get(key) or {}
    if not isinstance(found, Mapping):
        raise UserError(f"{where}: {key}: expected an object of keys, got {found!r}")
    return found


def read_windows(theirs: Mapping[str, Any], where: str, global_every: int = 0) -> dict[str, Any]:
    """Returns the window, and which blocks are global by `layer_types`, or else each `global_every`-th."""
    types, n_layers = theirs.get("layer_types"), theirs["num_hidden_layers"]
    if types is None:
        return {"window": theirs["sliding_window"], "global_every": global_every}
    if not isinstance(types, list) or len(types) != n_layers or not {LOCAL, GLOBAL}.issuperset(map(str, types)):
        raise UserError(f"{where}: layer_types: expected {n_layers} of {LOCAL} and {GLOBAL}, got {types!r}")
    if LOCAL not in types:
        return {}
    every = types.index(GLOBAL) + 1 if GLOBAL in types else 0
    if types != _layer_types(n_layers, every) or every == 1:
        raise UserError(f"{where}: layer_types: fxf has {GLOBAL} in each n-th block alone; got {types!r}")
    return {"window": theirs["sliding_window"], "global_every": every}


def _layer_types(n_layers: int, global_every: int) -> list[str]:
    return [GLOBAL if global_every and (i + 1) % global_every == 0 else LOCAL for i in range(n_layers)]


def write_windows(section: Any) -> dict[str, Any]:
    """Returns the keys of windows for a `model` section."""
    types = _layer_types(section.n_layers, section.global_every if section.window else 1)
    return {"sliding_window": section.window or None, "layer_types": types}
