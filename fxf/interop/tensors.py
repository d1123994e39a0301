"""Conversion between params and the tensors of a model of `transformers`, one tensor at a time."""

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from fxf.base.errors import UserError
from fxf.base.weights import EXPERT, TABLES, Params, Spec, Weight, leaves, map_weights, without_indices
from fxf.interop.architecture import Architecture
from fxf.interop.weights_file import as_weights, check_shapes

ROTATED = re.compile(r"attention/(query|key)(_bias|_scale)?$")  # weights whose head_dim rotary positions rotate
HEAD = "lm_head.weight"  # in a tied model a copy of the table, which is ignored


class Part(NamedTuple):
    """A weight, or one expert's slice of it, that makes up a tensor or a part of one."""

    path: str
    weight: Weight
    expert: int | None = None


def tensors_of(architecture: Architecture, spec: Spec) -> dict[str, list[Part]]:
    """Returns the weights that make up each tensor of a model, in their order within it."""
    tensors: dict[str, list[tuple[int, Part]]] = {}
    for path, weight in leaves(spec):
        numbers = [part for part in path.split("/") if part.isdecimal()]
        index, name = architecture.tensor(without_indices(path))
        experts: Iterable[int | None] = [None]
        if weight.axes[0] == EXPERT and name.count("{}") > len(numbers):  # a tensor for each expert
            experts = range(weight.shape[0])
            weight = dataclasses.replace(weight, shape=weight.shape[1:], axes=weight.axes[1:])
        for expert in experts:
            tensors.setdefault(name.format(*numbers, expert), []).append((index, Part(path, weight, expert)))
    return {name: [part for _, part in sorted(parts, key=lambda pair: pair[0])] for name, parts in tensors.items()}


def write_tensor(architecture: Architecture, name: str, parts: list[Part], values: Mapping[str, Any]) -> np.ndarray:
    """Returns a tensor. `values` has weights by path; missing weights are 0."""
    n_heads = _heads(architecture, name, parts)

    def value(part: Part) -> np.ndarray:
        weight = values.get(part.path)
        weight = weight if weight is None or part.expert is None else weight[part.expert]
        array = np.zeros(part.weight.shape, np.float32) if weight is None else np.asarray(jax.device_get(weight))
        shape = _shape(part.weight)
        return _turned(architecture, part, array, (-1, 2)).reshape(*shape[:-1], n_heads, shape[-1] // n_heads)

    joined = np.concatenate(list(map(value, parts)), axis=-1) if len(parts) > 1 else value(parts[0])
    tensor = joined.reshape(*joined.shape[:-2], -1)
    if name in architecture.rows:
        return tensor[None]
    if _is_convolution(architecture, name, tensor.shape):
        return tensor.T[:, None]
    return tensor.T if _is_transposed(architecture, parts[0].weight) else tensor


def read_tensor(
    architecture: Architecture, name: str, parts: list[Part], tensor: np.ndarray
) -> Iterator[tuple[Part, np.ndarray]]:
    """Yields each weight in a tensor, float32."""
    shapes, n_heads = [_shape(part.weight) for part in parts], _heads(architecture, name, parts)
    if _is_convolution(architecture, name, shapes[0]):
        tensor = tensor[:, 0].T
    elif _is_transposed(architecture, parts[0].weight):
        tensor = tensor.T
    heads = tensor.reshape(*tensor.shape[:-1], n_heads, -1)
    ends = np.cumsum([shape[-1] // n_heads for shape in shapes])
    for part, value in zip(parts, np.split(heads, ends[:-1], axis=-1), strict=True):
        yield part, _turned(architecture, part, value.reshape(part.weight.shape), (2, -1))


def to_params(
    architecture: Architecture, spec: Spec, tensors: Mapping[str, Any], where: str, shardings: Mapping[str, Any]
) -> Params:
    """Converts tensors to params in float32, reading one tensor at a time.

    Args:
      tensors: as `open_tensors` returns them.
      where: where the tensors are from, for error messages.
      shardings: of the weights by path; {} for the default device.

    Raises:
      UserError: a tensor is missing, unexpected, of another shape or not floating-point; or a tied copy differs.
    """
    parts = tensors_of(architecture, spec)
    named = {architecture.today(theirs): theirs for theirs in tensors}
    kept = {name: own for name, own in named.items() if name in parts or not re.search(architecture.ignored, name)}
    expected = {name: write_tensor(architecture, name, group, {}).shape for name, group in parts.items()}
    check_shapes(where, {name: tuple(tensors[theirs].get_shape()) for name, theirs in kept.items()}, expected)
    head, table = tensors.get(HEAD), kept.get(architecture.tensors["embedding/table"], "")
    if head and HEAD not in kept and not np.array_equal(head[()], tensors[table][()]):
        raise UserError(f"{where}: {HEAD} differs from {table}, but config.json ties them")
    values: dict[str, jax.Array] = {}
    experts: dict[str, list[np.ndarray]] = {}  # the experts read so far, by path
    sizes = {path: weight.shape[0] for path, weight in leaves(spec) if weight.axes[0] == EXPERT}
    for name, group in parts.items():
        tensor = as_weights(where, kept[name], tensors[kept[name]])
        for part, value in read_tensor(architecture, name, group, tensor):
            if part.expert is not None:
                experts.setdefault(part.path, []).append(value)
                if len(experts[part.path]) < sizes[part.path]:
                    continue
                value = np.stack(experts.pop(part.path))
            values[part.path] = jax.device_put(value, shardings.get(part.path))
    return map_weights(lambda path, _: values[path], spec)


def _shape(weight: Weight) -> tuple[int, ...]:
    """Returns the shape of a weight as a matrix, table or vector, with the axes of heads merged."""
    if weight.axes[0] == EXPERT:  # a tensor of all experts keeps its shape
        return weight.shape
    starts = [i for i, axis in enumerate(weight.axes) if axis != "head_dim"]
    if len(starts) < 2:
        return (math.prod(weight.shape),)
    return math.prod(weight.shape[: starts[1]]), math.prod(weight.shape[starts[1] :])


def _is_transposed(architecture: Architecture, weight: Weight) -> bool:
    return architecture.transposed and len(_shape(weight)) == 2 and weight.axes[0] not in (*TABLES, EXPERT)


def _turned(architecture: Architecture, part: Part, array: np.ndarray, pairs: tuple[int, int]) -> np.ndarray:
    """Reorders the rotary part of a weight's last axis by transposing it as `pairs`: (-1, 2) or (2, -1)."""
    if not (architecture.rotary_halves and ROTATED.search(part.path)):
        return array
    rotary, rest = np.split(array, [int(array.shape[-1] * architecture.rotary_share)], axis=-1)
    swapped = np.swapaxes(rotary.reshape(*rotary.shape[:-1], *pairs), -1, -2)
    return np.concatenate([swapped.reshape(rotary.shape), rest], -1)


def _heads(architecture: Architecture, name: str, parts: list[Part]) -> int:
    """Returns the number of heads by which a tensor interleaves its parts; 1 if each part is contiguous.

    Parts of experts are interleaved column by column.
    """
    weight = parts[0].weight
    return weight.shape[-1 if weight.axes[0] == EXPERT else 1] if re.search(architecture.by_head, name) else 1


def _is_convolution(architecture: Architecture, name: str, shape: tuple[int, ...]) -> bool:
    return len(shape) == 2 and re.search(architecture.convolutions, name) is not None
