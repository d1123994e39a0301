"""Weights of the `transformers` library in and out: GPT2LMHeadModel, BertForMaskedLM and MarianMTModel.

Their tensors and keys stand in `fxf.interop.architectures`. Neither `transformers` nor `torch` is needed.
"""

import dataclasses
import json
import re
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fxf.config import defaults, one_of, section
from fxf.errors import UserError
from fxf.files import read_file
from fxf.interop.architectures import ACTIVATIONS, ARCHITECTURES, Architecture
from fxf.interop.weights_file import as_weights, check_shapes, read_tensors, write_tensors
from fxf.layers.config import TransformerConfig
from fxf.models import MODELS
from fxf.models.model import Model
from fxf.weights import (
    TABLES,
    Params,
    Spec,
    Weight,
    flatten,
    leaves,
    map_weights,
    matrix_axes,
    shapes,
    without_numbers,
)

TABLE_AGAIN = r"(lm_head|decoder|embed_tokens)\.weight$"  # tensors that repeat the table of tokens
CONFIG_FILE, TENSORS_FILE = "config.json", "model.safetensors"
LARGEST = 2**31  # no size in config.json is as large
# Keys that say how to train, which nothing in config.json says.
TRAINING = ("init", "scan_blocks")


class Loaded(NamedTuple):
    """A model of `transformers` as fxf has it: the `model` section, the model, its params, and config.json."""

    config: TransformerConfig
    model: Model
    params: Params
    huggingface: dict[str, Any]


def load(source: Any) -> Loaded:
    """Reads a folder with config.json and model.safetensors, or a model object of `transformers`.

    Raises:
      UserError: the folder cannot be read, or the model is of another kind than the three.
    """
    if isinstance(source, str | Path):
        folder = Path(source)
        huggingface, (tensors, _) = _read_json(folder / CONFIG_FILE), read_tensors(folder / TENSORS_FILE)
        where = str(folder)
    else:
        huggingface, where = source.config.to_dict(), type(source).__name__
        cpu = {name: tensor.detach().cpu() for name, tensor in source.state_dict().items()}
        tensors = {name: (x.float() if x.is_floating_point() else x).numpy() for name, x in cpu.items()}
    model_type, vocab_size = huggingface.get("model_type"), huggingface.get("vocab_size")
    if model_type not in list(ARCHITECTURES):  # names no mistyped one: bart is no bert
        raise UserError(f"{where}: model_type: fxf has {', '.join(ARCHITECTURES)} alone; got {model_type!r}")
    if huggingface.get("quantization_config") is not None:
        raise UserError(f"{where}: quantization_config: fxf reads weights that are not quantized")
    architecture = ARCHITECTURES[model_type]
    config = read_config(architecture, huggingface, where)
    if type(vocab_size) is not int or not 1 <= vocab_size < LARGEST:
        raise UserError(f"{where}: vocab_size: expected an int from 1 on, got {vocab_size!r}")
    if config.n_layers > len(tensors):
        raise UserError(f"{where}: the config has {config.n_layers} layers; there are {len(tensors)} tensors")
    model = MODELS[architecture.model].make(config, huggingface["vocab_size"])
    return Loaded(config, model, _to_params(architecture, model.spec, tensors, where), huggingface)


def save(folder: Path, config: TransformerConfig, params: Params, *, first: int, end: int, padding: int) -> None:
    """Writes a folder that `from_pretrained` reads.

    Args:
      config: the `model` section; it has to choose what the model of `transformers` has.
      first: the token in front of every sequence that a decoder reads.
      end: the token that ends a sequence.
      padding: the token of padding.

    Raises:
      UserError: no model of the three is as `config` says, or the folder cannot be written.
    """
    tensors, architecture = to_tensors(config, params), _architecture(config)
    named = {"first": first, "end": end, "padding": padding}
    record = {
        **write_config(architecture, config),
        "vocab_size": len(params["embedding"]["table"]),
        **{key: named[meaning] for key, meaning in architecture.tokens.items()},
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CONFIG_FILE).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"{folder}: cannot write it: {error.strerror}") from None
    write_tensors(folder / TENSORS_FILE, tensors, {"format": "pt"})


def to_tensors(config: TransformerConfig, params: Params) -> dict[str, np.ndarray]:
    """Returns the tensors of a state dict by name, without those that repeat another one.

    Raises:
      UserError: no model of the three is as `config` says.
    """
    architecture = _architecture(config)
    write_config(architecture, config)
    spec = MODELS[architecture.model].make(config, len(params["embedding"]["table"])).spec
    return {name: np.asarray(x) for name, x in jax.device_get(_joined(architecture, spec, params)).items()}


def read_config(architecture: Architecture, huggingface: Mapping[str, Any], where: str) -> TransformerConfig:
    """Returns the `model` section that a config.json amounts to. Raises a UserError where there is none."""
    for key, value in architecture.config.items():
        if huggingface.get(key, value) != value:
            raise UserError(f"{where}: {key}: fxf has {architecture.name} with {value!r}, got {huggingface[key]!r}")
    config_class = MODELS[architecture.model].config
    values: dict[str, Any] = {}
    kinds = typing.get_type_hints(config_class)
    for key, theirs in architecture.keys:
        value = huggingface.get(theirs)
        if theirs == "n_inner" and value is None:
            value = 4 * values["d_model"]
        if key == "activation":
            value = ACTIVATIONS[one_of(value, ACTIVATIONS, f"{where}: {theirs}")]
        elif type(value) is not kinds[key] and not (kinds[key] is float and type(value) is int):
            raise UserError(f"{where}: {theirs}: expected {kinds[key].__name__}, got {value!r}")
        elif value >= LARGEST:
            raise UserError(f"{where}: {theirs}: expected less than {LARGEST}, got {value}")
        if values.setdefault(key, value) != value:
            raise UserError(f"{where}: {theirs}: fxf has one model.{key}; expected {values[key]!r}, got {value!r}")
    return section(config_class, defaults(config_class) | architecture.section | values, f"{where}: model")


def write_config(architecture: Architecture, config: TransformerConfig) -> dict[str, Any]:
    """Returns the config.json of a `model` section, without tokens. Raises a UserError where there is none."""
    model_type = next(name for name, known in ARCHITECTURES.items() if known is architecture)
    record = {"architectures": [architecture.name], "model_type": model_type, **architecture.config}
    for key, theirs in architecture.keys:
        value = getattr(config, key)
        if key == "activation":
            value = next(name for name, known in ACTIVATIONS.items() if known == value)
        record[theirs] = value
    there, here = (dataclasses.asdict(c) for c in (read_config(architecture, record, architecture.name), config))
    for key, value in here.items():
        if key not in TRAINING and there[key] != value:
            raise UserError(f"model.{key}: {architecture.name} has {there[key]!r}, got {value!r}")
    return record


def _architecture(config: TransformerConfig) -> Architecture:
    """Returns the architecture whose model is that of the section."""
    name = config.name  # type: ignore[attr-defined]
    for architecture in ARCHITECTURES.values():
        if architecture.model == name:
            return architecture
    raise UserError(f"model.name: transformers has no model like '{name}'")


def _pieces(architecture: Architecture, spec: Spec) -> Iterator[tuple[str, Weight, str, int, int]]:
    """Yields path, weight, the name of its tensor, its place in that tensor, and of how many."""
    for path, weight in leaves(spec):
        shared = without_numbers(path)
        template = architecture.tensors[shared]
        together = [other for other, name in architecture.tensors.items() if name == template]
        number = [part for part in path.split("/") if part.isdecimal()]
        yield path, weight, template.format(*number), together.index(shared), len(together)


def _joined(architecture: Architecture, spec: Spec, params: Params) -> dict[str, jax.Array]:
    """Returns the tensors, by name, that hold the params."""
    values, axes = flatten(params), flatten(matrix_axes(spec))
    joined: dict[str, list[jax.Array]] = {}
    for path, weight, name, *_ in _pieces(architecture, spec):
        joined.setdefault(name, []).append(_tensor(architecture, weight, axes[path], values[path]))
    tensors = {name: jnp.concatenate(parts, axis=-1) for name, parts in joined.items()}
    return tensors | {name: tensors[name][None] for name in architecture.rows}


def _tensor(architecture: Architecture, weight: Weight, axes: Any, value: jax.Array) -> jax.Array:
    """Returns a weight as a matrix, or where it is none, with the axes of its heads joined; a table as it is."""
    if axes is None:
        return value if weight.axes[0] in TABLES else value.reshape(-1)
    n_in = np.prod([weight.shape[axis] for axis in axes[0]], dtype=int)
    matrix = value.reshape(n_in, -1)
    return matrix.T if architecture.transposed else matrix


def _to_params(architecture: Architecture, spec: Spec, tensors: Mapping[str, np.ndarray], where: str) -> Params:
    """Returns the params that the tensors hold, float32. Raises a UserError where a tensor is missing or misshapen."""
    found: dict[str, np.ndarray] = {}
    names: dict[str, str] = {}
    ignored: dict[str, np.ndarray] = {}
    for theirs, tensor in tensors.items():
        name = theirs
        for pattern, replacement in architecture.renamed:
            name = re.sub(pattern, replacement, name)
        if architecture.ignored and re.search(architecture.ignored, name):
            ignored[theirs] = tensor
            continue
        if name in names:
            raise UserError(f"{where}: {names[name]} and {theirs} are two names of {name}")
        names[name], found[name] = theirs, as_weights(where, theirs, tensor)
    expected = jax.eval_shape(lambda params: _joined(architecture, spec, params), shapes(spec))
    check_shapes(where, {name: x.shape for name, x in found.items()}, {name: x.shape for name, x in expected.items()})
    table = architecture.tensors["embedding/table"]
    for theirs, tensor in ignored.items():
        if re.search(TABLE_AGAIN, theirs) and not np.array_equal(np.asarray(tensor, np.float32), found[table]):
            raise UserError(f"{where}: {theirs} differs from {table}; fxf has one table for both")
    axes, values = flatten(matrix_axes(spec)), {}
    for path, weight, name, part, n_parts in _pieces(architecture, spec):
        value = np.split(found[name], n_parts, axis=-1)[part]
        if axes[path] is not None and architecture.transposed:
            value = value.T
        values[path] = jnp.array(value.reshape(weight.shape))
    return map_weights(lambda path, _: values[path], spec)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(read_file(path).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON: {error}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected an object of keys")
    return content
