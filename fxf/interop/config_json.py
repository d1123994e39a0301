"""The `model` section of a config.json of `transformers`, and the config.json of a `model` section."""

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

# Keys that change only training, and how numbers are computed.
OF_A_RUN = ("init", "scan_blocks", "remat", "dtype", "attention_implementation")
DROPOUTS = ("dropout", "embedding_dropout", "attention_dropout")
NULL_IF_ZERO = ("window", "attention_softcap", "logit_softcap")
# What null stands for elsewhere, by the key of the `model` section; it reads the keys that precede it in the table.
IF_NULL: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "d_ff": lambda section: 4 * section["d_model"],
    "n_kv_heads": lambda section: section["n_heads"],
    "head_dim": lambda section: section["d_model"] // max(section["n_heads"], 1),
}


def read_config(architecture: Architecture, config_json: Mapping[str, Any], where: str) -> TransformerConfig:
    """Returns the `model` section for a config.json. Raises a UserError if fxf cannot express it."""
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
        said = {key: theirs[partner] for key, partner in pairs if theirs.get(partner) is not None}
        if own := {**fixed.get(name, {}), **said, **others.get(name, {})}:
            layers[name] = own
    values["layers"] = layers
    return section(config_class, defaults(config_class) | architecture.section | values, f"{where}: model")


def _named(architecture: Architecture, blocks: str) -> list[tuple[str, dict[str, str]]]:
    """Returns the layers that `blocks` names, each with its keys; config.json also has those that no block has."""
    return [(name, keys) for name, keys in architecture.layers.items() if name in re.split(r"\W+", blocks)]


class Written(NamedTuple):
    """A config.json for a `model` section.

    Attributes:
      architecture: the class of `transformers`.
      record: config.json, without vocabulary and special tokens.
      section: the `model` section that it is read as, which may have more biases than the one that was written.
    """

    architecture: Architecture
    record: dict[str, Any]
    section: TransformerConfig


def write_config(config: TransformerConfig, model_type: str = "") -> Written:
    """Returns the config.json of the class of `transformers` that computes what a `model` section says.

    Args:
      model_type: that of the class; "" for the first class that fits.

    Raises:
      UserError: there is no such class; the text says how the section differs from the class that is most like it.
    """
    name = config.name  # type: ignore[attr-defined]
    of_classes: list[list[str]] = []
    known, ignored = ([ARCHITECTURES[model_type]], ()) if model_type else (ARCHITECTURES.values(), (UserError,))
    for architecture in (each for each in known if each.model == name):
        with contextlib.suppress(*ignored):  # no section of this class has such values
            written = _written(architecture, config)
            of_classes.append(list(_differences(architecture, written.section, config)))
            if not of_classes[-1]:
                return written
    none = [f"model.name: transformers has no model like '{name}'"]
    nearest = min(of_classes or [none], key=len)
    raise UserError("; ".join(nearest))


def _written(architecture: Architecture, config: TransformerConfig) -> Written:
    config = _explicit(config)
    record: dict[str, Any] = {"architectures": [architecture.name], "model_type": architecture.model_type}
    record |= architecture.config
    for key, theirs in architecture.pairs:
        value = getattr(config, key)
        if key == "activation":
            value = next((name for name, known in ACTIVATIONS.items() if known == value), "gelu")
        # A class that has segments has at least one, whose vector is 0 if the model has none.
        record[theirs] = value or None if key in NULL_IF_ZERO else value or 1 if key == "segments" else value
    for name, keys in _named(architecture, config.blocks):
        layer: Any = layer_of(config, name)
        known = {key: getattr(layer, key, getattr(layer.config, key, None)) for key in keys}
        record |= {theirs: known[key] for key, partners in keys.items() for theirs in partners.split()}
    record |= architecture.write(config)
    shared = dataclasses.replace(architecture, rotary_share=config.rotary_share)
    return Written(shared, record, read_config(architecture, record, architecture.name))


def _explicit(config: TransformerConfig) -> TransformerConfig:
    """Returns the same section without values that stand for another one."""
    scale = config.query_scale or config.head_width**-0.5
    return dataclasses.replace(config, n_kv_heads=config.n_groups, head_dim=config.head_width, query_scale=scale)


def _differences(architecture: Architecture, there: TransformerConfig, here: TransformerConfig) -> Iterator[str]:
    """Yields a text for each key of `here` whose value a model with the section `there` does not have."""
    free = {*OF_A_RUN, "layers", *(key for key in DROPOUTS if key not in architecture.keys)}
    if here.rope_ramp == "longrope":  # in transformers a text's length chooses the factors
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
    """Returns the keys of single layers that change what they compute, also those by default, by `layers.NAME.KEY`."""
    found: dict[str, Any] = {}
    for name in names:
        layer: Any = layer_of(config, name)
        own = {**{key: value for key, value in vars(layer).items() if key != "config"}, **config.layers.get(name, {})}
        own.pop("balance", None)
        if "bias_rate" in own:
            own["bias_rate"] = own["bias_rate"] > 0
        found |= {f"layers.{name}.{key}": value for key, value in own.items()}
    return found


def _expressed_by_zeros(key: str, there: Any, here: Any) -> bool:
    """Returns whether a model with the biases or segments of `there` is one with those of `here` if others are 0."""
    if key == "attention_bias":
        return there == "all" or here == "none"
    return (key == "feed_forward_bias" and there) or (key == "segments" and not here)
