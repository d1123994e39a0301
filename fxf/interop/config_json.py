"""Conversion between a config.json of `transformers` and a `model` section."""

import contextlib
import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from fxf.base.config import defaults, one_of, section
from fxf.base.errors import UserError
from fxf.interop.architecture import ACTIVATIONS, Architecture
from fxf.interop.architectures import ARCHITECTURES
from fxf.layers.config import TransformerConfig
from fxf.layers.kinds import layer_of
from fxf.models import MODELS

# Keys that affect only training, or how the same numbers are computed.
OF_A_RUN = ("init", "scan_blocks", "remat", "dtype", "attention_implementation")
DROPOUTS = ("dropout", "embedding_dropout", "attention_dropout")
NULL_IF_ZERO = ("window", "attention_softcap", "logit_softcap")
# The value of null for other keys of the `model` section, computed from the keys before it in the table.
IF_NULL: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "d_ff": lambda section: 4 * section["d_model"],
    "n_kv_heads": lambda section: section["n_heads"],
    "head_dim": lambda section: section["d_model"] // max(section["n_heads"], 1),
}


def read_config(architecture: Architecture, config_json: Mapping[str, Any], where: str) -> TransformerConfig:
    """Converts a config.json to a `model` section. Raises a UserError if fxf cannot express it."""
    theirs = {**architecture.defaults, **config_json}
    for key, value in {**architecture.config, **architecture.checked}.items():
        if theirs.get(key) not in (None, value):
            raise UserError(f"{where}: {key}: fxf has {architecture.name} with {value!r}, got {theirs[key]!r}")
    config_class = MODELS[architecture.model].config
    values: dict[str, Any] = {}
    try:
        for key, name in architecture.pairs:
            value = theirs.get(name)
            if value is None and (key in NULL_IF_ZERO or key in IF_NULL):
                value = 0 if key in NULL_IF_ZERO else IF_NULL[key](values)
            if key == "activation":
                known = {**ACTIVATIONS, **architecture.activations}
                value = known[one_of(value, known, f"{where}: {name}")]
            if values.setdefault(key, value) != value:
                raise UserError(f"{where}: {name}: fxf has one model.{key}; expected {values[key]!r}, got {value!r}")
        values |= architecture.read(theirs, where)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, StopIteration) as error:
        raise UserError(f"{where}: a key of {architecture.name} is missing or of another type: {error!r}") from None
    fixed, others, layers = architecture.section.get("layers", {}), values.get("layers", {}), {}
    blocks = values.get("blocks") or architecture.section.get("blocks") or defaults(config_class)["blocks"]
    for name, keys in _named(architecture, blocks):
        pairs = [(key, partner) for key, partners in keys.items() for partner in reversed(partners.split())]
        present = {key: theirs[partner] for key, partner in pairs if theirs.get(partner) is not None}
        if own := {**fixed.get(name, {}), **present, **others.get(name, {})}:
            layers[name] = own
    values["layers"] = layers
    return section(config_class, defaults(config_class) | architecture.section | values, f"{where}: model")


def _named(architecture: Architecture, blocks: str) -> list[tuple[str, dict[str, str]]]:
    """Returns the layers that `blocks` names, with their keys; config.json may have keys of other layers."""
    return [(name, keys) for name, keys in architecture.layers.items() if name in re.split(r"\W+", blocks)]


class Written(NamedTuple):
    """A config.json for a `model` section.

    Attributes:
      architecture: the class of `transformers`.
      record: config.json, without vocabulary and special tokens.
      section: the `model` section that config.json is read as. It may have more biases than the section written.
    """

    architecture: Architecture
    record: dict[str, Any]
    section: TransformerConfig


def write_config(config: TransformerConfig, model_type: str = "") -> Written:
    """Converts a `model` section to the config.json of a class of `transformers` that computes the same.

    Args:
      model_type: that of the class; "" for the first class that fits.

    Raises:
      UserError: no class fits. The message says how the section differs from the most similar class.
    """
    name = config.name  # type: ignore[attr-defined]
    by_class: list[list[str]] = []  # the differences from each class
    known, ignored = ([ARCHITECTURES[model_type]], ()) if model_type else (ARCHITECTURES.values(), (UserError,))
    for architecture in (candidate for candidate in known if candidate.model == name):
        with contextlib.suppress(*ignored):  # this class cannot have such values
            written = _written(architecture, config)
            by_class.append(list(_differences(architecture, written.section, config)))
            if not by_class[-1]:
                return written
    nearest = min(by_class, key=len, default=[f"model.name: transformers has no model like '{name}'"])
    raise UserError("; ".join(nearest))


def _written(architecture: Architecture, config: TransformerConfig) -> Written:
    config = _explicit(config)
    record: dict[str, Any] = {"architectures": [architecture.name], "model_type": architecture.model_type}
    record |= architecture.config
    for key, theirs in architecture.pairs:
        value = getattr(config, key)
        if key == "activation":
            value = next((name for name, known in ACTIVATIONS.items() if known == value), "gelu")
        # A class with segments has at least one; its vector is 0 if the model has no segments.
        record[theirs] = value or None if key in NULL_IF_ZERO else value or 1 if key == "segments" else value
    for name, keys in _named(architecture, config.blocks):
        layer: Any = layer_of(config, name)
        known = {key: getattr(layer, key, getattr(layer.config, key, None)) for key in keys}
        record |= {theirs: known[key] for key, partners in keys.items() for theirs in partners.split()}
    record |= architecture.write(config)
    shared = dataclasses.replace(architecture, rotary_share=config.rotary_share)
    return Written(shared, record, read_config(architecture, record, architecture.name))


def _explicit(config: TransformerConfig) -> TransformerConfig:
    """Returns the section with the numbers of heads, their width and the query scale made explicit."""
    scale = config.query_scale or config.head_width**-0.5
    return dataclasses.replace(config, n_kv_heads=config.n_groups, head_dim=config.head_width, query_scale=scale)


def _differences(architecture: Architecture, there: TransformerConfig, here: TransformerConfig) -> Iterator[str]:
    """Yields a message for each key whose value in `here` a model with the section `there` cannot express."""
    free = {*OF_A_RUN, "layers", *(key for key in DROPOUTS if key not in architecture.keys)}
    if here.rope_ramp == "longrope":  # in transformers the length of the text chooses the factors
        free.add("max_len")
    names = {**there.layers, **here.layers}
    values = {**dataclasses.asdict(_explicit(here)), **_of_layers(here, names)}
    expected = {**dataclasses.asdict(_explicit(there)), **_of_layers(there, names)}
    for key in {**values, **expected}:
        value, known = values.get(key), expected.get(key)
        rounded = type(known) is type(value) is float and math.isclose(known, value)
        if key not in free and known != value and not rounded and not _expressed_by_zeros(key, known, value):
            yield f"model.{key}: {architecture.name} has {known!r}, got {value!r}"


def _of_layers(config: TransformerConfig, names: Iterable[str]) -> dict[str, Any]:
    """Returns all keys of these layers that affect what they compute, by `layers.NAME.KEY`, defaults included."""
    values: dict[str, Any] = {}
    for name in names:
        layer: Any = layer_of(config, name)
        own = {**{key: value for key, value in vars(layer).items() if key != "config"}, **config.layers.get(name, {})}
        own.pop("balance", None)
        if "bias_rate" in own:
            own["bias_rate"] = own["bias_rate"] > 0
        values |= {f"layers.{name}.{key}": value for key, value in own.items()}
    return values


def _expressed_by_zeros(key: str, there: Any, here: Any) -> bool:
    """Returns whether a model with the value `there` equals one with `here` if its further biases or segments are 0."""
    if key == "attention_bias":
        return there == "all" or here == "none"
    return (key == "feed_forward_bias" and there) or (key == "segments" and not here)
