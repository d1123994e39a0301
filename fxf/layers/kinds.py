"""The kinds of layers by name, and the stacks of blocks that `model.blocks` describes.

    attention+feed_forward                     each block has two layers
    3*(delta+feed_forward), attention+moe      four blocks, which repeat over the depth
    attention+feed_forward; delta+moe          a first block, and after it one kind
    2@(attention+feed_forward)                 a block that is applied twice with the same weights
    depths(attention+feed_forward)             a layer around a block
    mine:delta+feed_forward                    `delta` in mine.py

A name is a kind, or a section `model.layers.NAME` whose `kind` names one. The section holds keys for that layer alone:
the layer's own, and keys of the `model` section that it overrides. The keys of a kind of block are in a section of its
name.
"""

import dataclasses
import itertools
import re
from collections.abc import Callable, Mapping
from typing import Any

from fxf.base.config import Choices, checked, fields_of, one_of, require_off, require_read, with_changes
from fxf.base.errors import UserError, nearest
from fxf.layers.attention import ACT_ON_SCORES, Attention, CrossAttention, Expressive, GatedAttention, SinkLogits
from fxf.layers.block import BLOCKS, Block, Stack
from fxf.layers.config import TransformerConfig
from fxf.layers.feed_forward import Dense
from fxf.layers.latent_attention import LatentAttention
from fxf.layers.layer import Layer
from fxf.layers.linear_attention import LinearAttention
from fxf.layers.memory_layers import GatedDelta, Mamba2
from fxf.layers.moe import MoE
from fxf.layers.positions import POSITIONS

ATTENTIONS: Choices[type[Attention]] = Choices(
    {
        **{"softmax": Attention, "gated": GatedAttention, "expressive": Expressive},
        **{"sink": SinkLogits, "linear": LinearAttention, "latent": LatentAttention},
    }
)
FEED_FORWARDS: Choices[type] = Choices({"dense": Dense, "moe": MoE})
LAYERS: Choices[type] = Choices(
    {
        **{"attention": Attention, "cross_attention": CrossAttention, "feed_forward": Dense},
        **{"moe": MoE, "delta": GatedDelta, "mamba2": Mamba2},
    }
)

WITHOUT_ATTENTION = {"feed_forward", "moe", "delta", "mamba2"}
ONLY_ATTENTION: dict[str, Any] = {"attention": "softmax", "n_kv_heads": 0, "attention_bias": "output", **ACT_ON_SCORES}

# Layers whose kind is set by a key of the `model` section.
OF_MODEL: dict[str, tuple[Choices[Any], str]] = {
    **dict.fromkeys(("attention", "cross_attention"), (ATTENTIONS, "attention")),
    "feed_forward": (FEED_FORWARDS, "feed_forward"),
}

NAME = r"[a-zA-Z_][\w.:-]*"  # of a layer in `model.blocks`
INNER = "inner_residual"  # the name of the stream after each block that is nested in a block

EMBEDDED = {name for name, kind in POSITIONS.items() if kind.embed}  # positions that act before the first layer

UNSCALED: dict[str, Any] = {"rope_factor": 1.0, "rope_trained_len": 0, "rope_ramp": "llama3", "rope_factors": ""}
# Keys that act within a sequence, with the values that cross-attention gets.
BETWEEN_SEQUENCES: dict[str, Any] = {
    **{"positions": "none", "window": 0, "global_every": 0, "local_rope_theta": 0.0, "rope_theta": 10000.0, **UNSCALED},
    **{"rotary_share": 1.0, "position_range": 0, "position_gap": 1, "position_stretch": 1.0},
}
# Keys of the `model` section that only blocks and models read, and no layer of fxf.
AROUND_LAYERS = (
    *("name", "n_layers", "d_model", "max_len", "blocks", "layers", "block", "norm", "norm_epsilon_in", "final_norm"),
    *("dropout", "embedding_dropout", "embedding_norm", "position_range", "position_gap", "position_stretch"),
    *("embeddings", "tied_embeddings", "scaled_embeddings", "segments", "cross_norm", "head", "logits_bias"),
    *("final_bias", "logit_softcap", "global_every", "local_rope_theta", "init", "scan_blocks", "remat", "dtype"),
)


def stack_of(config: TransformerConfig, cross: bool | None = None, vocab_size: int = 0) -> Stack:
    """Returns the blocks of a model.

    Args:
      cross: True: a decoder that reads a source: each block has cross-attention before its last layer, unless
        `model.blocks` says where. False: the encoder of that source, without cross-attention. None: there is no source.
      vocab_size: the number of tokens, for layers that have a field of this name.

    Raises:
      UserError: `model.blocks` is malformed, or names an unknown kind or key.
    """
    _require_read(config, cross)
    head_text, semicolon, text = config.blocks.rpartition(";")
    arguments = config, cross, vocab_size
    head = _blocks(head_text, *arguments) if semicolon else []
    period = _alternating(*arguments) if config.global_every else _blocks(text, *arguments)
    names = re.findall(NAME, f"{config.blocks} {config.block}{' cross_attention' * (cross is not None)}")
    named = sorted({name.rpartition(":")[2] for name in names})
    for name in sorted(config.layers.keys() - named):
        near = nearest(name, named) or f" (here are {', '.join(named)})"
        raise UserError(f"model.layers.{name}: model.blocks '{config.blocks}' names no such layer{near}")
    n_repeated = config.n_layers - len(head)
    if n_repeated < 0:
        raise UserError(f"model.n_layers: model.blocks begins with {len(head)} blocks; got {config.n_layers}")
    return Stack(config, (*head, *itertools.islice(itertools.cycle(period), n_repeated)), len(head), len(period))


def reads_positions(config: TransformerConfig) -> bool:
    """Returns whether a layer may read positions: a user's own layer may, and one with positions in its section."""
    own = [section.get(key, "") for section in config.layers.values() for key in ("kind", "attention")]
    own_positions = any("positions" in section for section in config.layers.values())
    return config.positions != "none" or own_positions or ":" in "".join([config.attention, config.blocks, *own])


def _require_read(config: TransformerConfig, cross: bool | None) -> None:
    """Raises a UserError if a key of positions or attention is set that no layer can read."""
    if not reads_positions(config):
        drawn = {"position_range": 0, "position_stretch": 1}
        require_off("model", config, drawn, "with model.positions 'none' nothing reads it")
    names = re.findall(NAME, config.blocks)
    kinds = {config.layers.get(name, {}).get("kind", name) for name in names}
    if kinds and kinds <= {*WITHOUT_ATTENTION, "cross_attention"}:
        positions = POSITIONS[one_of(config.positions, POSITIONS, "model.positions")]
        unread = ONLY_ATTENTION if cross is None else {"window": 0}  # cross-attention reads the others
        off = {**unread, **({"positions": "none"} if positions.rotate or positions.bias else {})}
        require_off("model", config, off, f"model.blocks '{config.blocks}' has no self-attention")


def _alternating(config: TransformerConfig, cross: bool | None, vocab_size: int) -> list[Layer]:
    """Returns `global_every` blocks, the last one without a window."""
    if config.blocks != TransformerConfig.blocks:
        raise UserError(f"model.global_every: only with model.blocks '{TransformerConfig.blocks}'; leave it at 0")
    plain: dict[str, Any] = {"global_every": 0, "local_rope_theta": 0.0}
    rotary = {"rope_theta": config.local_rope_theta, **UNSCALED} if config.local_rope_theta else {}
    local = dataclasses.replace(config, **plain, **rotary)
    last = dataclasses.replace(config, **plain, window=0)
    local_blocks, last_block = (_blocks(config.blocks, each, cross, vocab_size) for each in (local, last))
    return (config.global_every - 1) * local_blocks + last_block


def _blocks(text: str, config: TransformerConfig, cross: bool | None, vocab_size: int) -> list[Layer]:
    """Returns the blocks of a part of `model.blocks`."""
    blocks, given = list[Layer](), {"vocab_size": vocab_size}
    for item in _split(text):
        match = re.fullmatch(rf"(?:([1-9]\d*)([*@])|({NAME}))\((.*)\)", item)
        if match is None:
            names = [name for name in item.split("+") if cross is not False or name.strip() != "cross_attention"]
            if cross and "cross_attention" not in config.blocks:
                names.insert(len(names) - 1, "cross_attention")
            layers = {name.strip().rpartition(":")[2]: layer_of(config, name.strip(), **given) for name in names}
            if len(layers) != len(names):
                what = "names a layer twice; call one of them NAME, by model.layers.NAME.kind"
                raise UserError(f"model.blocks: {item!r} {what}")
            cls, short = BLOCKS[one_of(config.block, BLOCKS, "model.block")], config.block.rpartition(":")[2]
            if Block not in getattr(cls, "__mro__", ()):
                raise UserError(f"model.block: {config.block}: expected a subclass of Block; model.blocks names layers")
            own, path = config.layers.get(short, {}), f"model.layers.{short}"
            blocks.append(_build(cls, path, config, own, {"layers": layers}))
            continue
        times, mark, kind, inside = match.groups()
        inner = _blocks(inside, config, cross, vocab_size) if inside.strip() or mark else []
        if mark == "*":
            blocks += int(times) * inner
        elif mark == "@":
            blocks.append(Stack(config, tuple(int(times) * inner), 0, len(inner), shared=True, stream=INNER))
        else:
            part = {"part": inner[0] if len(inner) == 1 else Stack(config, tuple(inner), len(inner), stream=INNER)}
            blocks.append(layer_of(config, kind, **given, **(part if inner else {})))
    return blocks


def _split(text: str) -> list[str]:
    """Splits a text at the commas that are outside of parentheses."""
    items, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            items.append("")
        else:
            items[-1] += letter
    if depth or ";" in text or not all(map(str.strip, items)):
        raise UserError(f"model.blocks: {text!r} has an unmatched parenthesis, two ';', or names no block somewhere")
    return [item.strip() for item in items]


def n_named(pattern: str) -> int:
    """Returns how many blocks `model.blocks` names, with each of those that it repeats."""
    found = [re.fullmatch(r"(\d+)\*\((.*)\)", item) for part in pattern.split(";") for item in _split(part)]
    return sum(int(match[1]) * n_named(match[2]) if match else 1 for match in found)


def layer_of(config: TransformerConfig, name: str, **given: Any) -> Layer:
    """Returns the layer that `model.blocks` names, with its keys.

    Args:
      given: values of fields of the layer that are not keys.

    Raises:
      UserError: there is no such kind, or `model.layers` has a key or a value that it does not take.
    """
    short = name.rpartition(":")[2]
    own, path = dict(config.layers.get(short, {})), f"model.layers.{short}"
    kind = own.pop("kind", name)
    cls = LAYERS[one_of(kind, LAYERS, f"{path}.kind" if kind != name else "model.blocks")]
    of_model = fields_of(type(config))
    if kind in OF_MODEL:
        choices, key = OF_MODEL[kind]
        cls = choices[one_of(own.get(key, getattr(config, key)), choices, f"model.{key}")]
    unread = {*BETWEEN_SEQUENCES} if kind == "cross_attention" else set()
    if is_of_fxf := cls.__module__.startswith("fxf."):  # a layer of the user's may read any key
        unread |= {*AROUND_LAYERS, *({*BETWEEN_SEQUENCES, *ONLY_ATTENTION} if kind in WITHOUT_ATTENTION else ())}
    taken = of_model.keys() - unread
    changes = {key: checked(value, of_model[key], f"{path}.{key}") for key, value in own.items() if key in taken}
    positions = changes.get("positions", config.positions)
    if positions != config.positions and (config.positions if positions == "none" else positions) in EMBEDDED:
        raise UserError(f"{path}.positions: a layer does not change what embeddings have; set model.positions")
    changed = dataclasses.replace(config, **changes, layers={}) if changes else config
    if changes and is_of_fxf:
        require_read(path, changed, changes)
        changed = dataclasses.replace(config, **with_changes(type(config), vars(changed), changes))
    rest = {key: value for key, value in own.items() if key not in changes}
    if kind == "cross_attention":
        return CrossAttention(_build(cls, path, dataclasses.replace(changed, **BETWEEN_SEQUENCES), rest, given))
    return _build(cls, path, changed, rest, given)


def _build(cls: type, path: str, config: Any, own: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    """Returns a layer. The value of a field is from its own section, `given`, the `model` section, or its default."""
    of_flax = any(base.__module__ in ("flax.linen.module", "flax.nnx.module") for base in getattr(cls, "__mro__", ()))
    of_model = fields_of(type(config))
    if of_flax:
        from fxf.layers import flax_module  # imported here, because NNX takes most of a second
    elif not dataclasses.is_dataclass(cls) or not all(hasattr(cls, name) for name in ("spec", "apply")):
        raise UserError(f"{path}: {cls.__name__}: a layer is a frozen dataclass with the functions spec and apply")
    fields = flax_module.fields_of_module(cls) if of_flax else fields_of(cls)
    for key in own:
        if key not in fields:
            names = [name for name in fields if name not in ("config", *given)]
            near = nearest(key, [*names, *of_model]) or f"; {cls.__name__} has: {', '.join(names)}"
            what = f"only model.{key} is read" if key in of_model else f"unknown key{near}"
            if key in vars(cls).get("__annotations__", {}):
                what = f"the field is no key: {cls.__name__} lacks the decorator @dataclasses.dataclass(frozen=True)"
            raise UserError(f"{path}.{key}: {what}")
    values = {"config": config, **given}
    for name, field in fields.items():
        if name in own:
            values[name] = checked(own[name], field, f"{path}.{name}")
        elif name not in values and name in of_model and field.kind is not Callable:
            value, where = getattr(config, name), f"{path}.{name}, which has the value of model.{name}"
            values[name] = checked(value, field, where) if field.kind in (bool, int, float, str) else value
        elif name not in values and field.required:
            raise UserError(f"{path}.{name}: missing; {cls.__name__} has no default for it")
    if "part" in values.keys() - fields.keys():
        raise UserError(f"model.blocks: {cls.__name__} cannot wrap blocks: it has no field 'part'")
    values = {name: value for name, value in values.items() if name in fields}
    if of_flax:
        return flax_module.flax_layer(cls, values, config.d_model, config.dtype)
    require_read(path, layer := cls(**values), own)
    return layer
