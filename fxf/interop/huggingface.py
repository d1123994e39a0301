"""Import and export of the `transformers` library's GPT2LMHeadModel, BertForMaskedLM and MarianMTModel.

`fxf.interop.architectures` lists their tensors and keys. Neither `transformers` nor `torch` is needed.
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

TABLE_AGAIN = r"(lm_head|decoder|embed_tokens)\.weight$"  # tensors that repeat the embedding table
CONFIG_FILE, TENSORS_FILE = "config.json", "model.safetensors"
SIZE_LIMIT = 2**31  # sizes in config.json are smaller
# Keys for training, which have no partner in config.json.
TRAINING = ("init", "scan_blocks")


class Loaded(NamedTuple):
    """A model of `transformers` in fxf: the `model` section, the model, its params, and config.json."""

    config: TransformerConfig
    model: Model
    params: Params
    huggingface: dict[str, Any]


def load(source: Any) -> Loaded:
    """Reads a folder with config.json and model.safetensors, or a model object of `transformers`.

    Raises:
      UserError: the folder cannot be read, or fxf does not have the model.
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
    if model_type not in list(ARCHITECTURES):  # suggests no nearest name, because bart is not a mistyped bert
        raise UserError(f"{where}: model_type: expected one of {', '.join(ARCHITECTURES)}; got {model_type!r}")
    if huggingface.get("quantization_config") is not None:
        raise UserError(f"{where}: quantization_config: fxf cannot read quantized weights")
    architecture = ARCHITECTURES[model_type]
    config = read_config(architecture, huggingface, where)
    if type(vocab_size) is not int or not 1 <= vocab_size < SIZE_LIMIT:
        raise UserError(f"{where}: vocab_size: expected a positive int, got {vocab_size!r}")
    if config.n_layers > len(tensors):
        raise UserError(f"{where}: the config has {config.n_layers} layers, but there are only {len(tensors)} tensors")
    model = MODELS[architecture.model].make(config, huggingface["vocab_size"])
    return Loaded(config, model, _to_params(architecture, model.spec, tensors, where), huggingface)


def save(folder: Path, config: TransformerConfig, params: Params, *, first: int, end: int, padding: int) -> None:
    """Writes a folder that `from_pretrained` reads.

    Args:
      config: the `model` section; its choices must be those of a model of `transformers`.
      first: the token in front of every sequence that a decoder reads.
      end: the token that ends a sequence.
      padding: the padding token.

    Raises:
      UserError: `transformers` has no model like `config`, or the folder cannot be written.
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
      UserError: `transformers` has no model like `config`.
    """
    architecture = _architecture(config)
    write_config(architecture, config)
    spec = MODELS[architecture.model].make(config, len(params["embedding"]["table"])).spec
    return {name: np.asarray(x) for name, x in jax.device_get(_joined(architecture, spec, params)).items()}


def read_config(architecture: Architecture, huggingface: Mapping[str, Any], where: str) -> TransformerConfig:
    """Returns the `model` section for a config.json. Raises a UserError if fxf cannot express it."""
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
        elif value >= SIZE_LIMIT:
            raise UserError(f"{where}: {theirs}: expected less than {SIZE_LIMIT}, got {value}")
        if values.setdefault(key, value) != value:
            raise UserError(f"{where}: {theirs}: fxf has one model.{key}; expected {values[key]!r}, got {value!r}")
    return section(config_class, defaults(config_class) | architecture.section | values, f"{where}: model")


def write_config(architecture: Architecture, config: TransformerConfig) -> dict[str, Any]:
    """Returns the config.json for a `model` section, without tokens. Raises a UserError if it cannot express it."""
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
    """Returns the architecture with the model of the section."""
    name = config.name  # type: ignore[attr-defined]
    for architecture in ARCHITECTURES.values():
        if architecture.model == name:
            return architecture
    raise UserError(f"model.name: transformers has no model like '{name}'")


def _pieces(architecture: Architecture, spec: Spec) -> Iterator[tuple[str, Weight, str, int, int]]:
    """Yields each weight's path, the weight, its tensor's name, its index in the tensor, and the tensor's parts."""
    for path, weight in leaves(spec):
        shared = without_numbers(path)
        template = architecture.tensors[shared]
        together = [other for other, name in architecture.tensors.items() if name == template]
        number = [part for part in path.split("/") if part.isdecimal()]
        yield path, weight, template.format(*number), together.index(shared), len(together)


def _joined(architecture: Architecture, spec: Spec, params: Params) -> dict[str, jax.Array]:
    """Returns the params as tensors by name."""
    values, axes = flatten(params), flatten(matrix_axes(spec))
    joined: dict[str, list[jax.Array]] = {}
    for path, weight, name, *_ in _pieces(architecture, spec):
        joined.setdefault(name, []).append(_tensor(architecture, weight, axes[path], values[path]))
    tensors = {name: jnp.concatenate(parts, axis=-1) for name, parts in joined.items()}
    return tensors | {name: tensors[name][None] for name in architecture.rows}


def _tensor(architecture: Architecture, weight: Weight, axes: Any, value: jax.Array) -> jax.Array:
    """Returns a weight as a matrix with the axes of heads joined; a table unchanged; others as vectors."""
    if axes is None:
        return value if weight.axes[0] in TABLES else value.reshape(-1)
    n_in = np.prod([weight.shape[axis] for axis in axes[0]], dtype=int)
    matrix = value.reshape(n_in, -1)
    return matrix.T if architecture.transposed else matrix


def _to_params(architecture: Architecture, spec: Spec, tensors: Mapping[str, np.ndarray], where: str) -> Params:
    """Returns the tensors as params in float32. Raises a UserError if a tensor is missing or has another shape."""
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
            raise UserError(f"{where}: {names[name]} and {theirs} are both names of {name}")
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
