"""Params as the tensors of a model of `transformers`, and back, one tensor at a time."""

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

ROTATED = re.compile(r"attention/(query|key)(_bias|_scale)?$")  # weights whose head_dim rotary positions turn
HEAD = "lm_head.weight"  # repeats the table in a tied model, and is then ignored


class Part(NamedTuple):
    """A weight, or that of one expert, that is a part of a tensor, or all of it."""

    path: str
    weight: Weight
    expert: int | None = None


def tensors_of(architecture: Architecture, spec: Spec) -> dict[str, list[Part]]:
    """Returns the weights that make each tensor of a model, in their order within it."""
    found: dict[str, list[tuple[int, Part]]] = {}
    for path, weight in leaves(spec):
        numbers = [part for part in path.split("/") if part.isdecimal()]
        place, name = architecture.tensor(without_indices(path))
        experts: Iterable[int | None] = [None]
        if weight.axes[0] == EXPERT and name.count("{}") > len(numbers):  # each expert has a tensor of its own
            experts = range(weight.shape[0])
            weight = dataclasses.replace(weight, shape=weight.shape[1:], axes=weight.axes[1:])
        for expert in experts:
            found.setdefault(name.format(*numbers, expert), []).append((place, Part(path, weight, expert)))
    return {name: [part for _, part in sorted(parts, key=lambda each: each[0])] for name, parts in found.items()}


def write_tensor(architecture: Architecture, name: str, parts: list[Part], values: Mapping[str, Any]) -> np.ndarray:
    """Returns a tensor; `values` are weights by path, and those that it lacks are 0."""
    n_heads = _heads(architecture, name, parts)

    def value(part: Part) -> np.ndarray:
        found = values.get(part.path)
        found = found if found is None or part.expert is None else found[part.expert]
        array = np.zeros(part.weight.shape, np.float32) if found is None else np.asarray(jax.device_get(found))
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
    """Yields each weight of a tensor, float32."""
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
    """Returns the tensors as params in float32; reads one tensor at a time.

    Args:
      tensors: as `open_tensors` returns them.
      where: what the tensors are from, for messages.
      shardings: of the weights by path; none for the default device.

    Raises:
      UserError: a tensor is missing, unexpected, of another shape, not what it repeats, or its numbers are no floats.
    """
    parts = tensors_of(architecture, spec)
    named = {architecture.today(theirs): theirs for theirs in tensors}
    found = {name: of for name, of in named.items() if name in parts or not re.search(architecture.ignored, name)}
    expected = {name: write_tensor(architecture, name, group, {}).shape for name, group in parts.items()}
    check_shapes(where, {name: tuple(tensors[theirs].get_shape()) for name, theirs in found.items()}, expected)
    head, table = tensors.get(HEAD), found.get(architecture.tensors["embedding/table"], "")
    if head and HEAD not in found and not np.array_equal(head[()], tensors[table][()]):
        raise UserError(f"{where}: {HEAD} differs from {table}, to which {architecture.name} ties it by config.json")
    values: dict[str, jax.Array] = {}
    experts: dict[str, list[np.ndarray]] = {}  # by path, those that have been read, in their order
    sizes = {path: weight.shape[0] for path, weight in leaves(spec) if weight.axes[0] == EXPERT}
    for name, group in parts.items():
        tensor = as_weights(where, found[name], tensors[found[name]])
        for part, value in read_tensor(architecture, name, group, tensor):
            if part.expert is not None:
                experts.setdefault(part.path, []).append(value)
                if len(experts[part.path]) < sizes[part.path]:
                    continue
                value = np.stack(experts.pop(part.path))
            values[part.path] = jax.device_put(value, shardings.get(part.path))
    return map_weights(lambda path, _: values[path], spec)


def _shape(weight: Weight) -> tuple[int, ...]:
    """Returns the shape of a weight as a table or matrix, with the axes of heads joined, or else as a vector."""
    if weight.axes[0] == EXPERT:  # of all experts, as it is
        return weight.shape
    starts = [i for i, axis in enumerate(weight.axes) if axis != "head_dim"]
    if len(starts) < 2:
        return (math.prod(weight.shape),)
    return math.prod(weight.shape[: starts[1]]), math.prod(weight.shape[starts[1] :])


def _is_transposed(architecture: Architecture, weight: Weight) -> bool:
    return architecture.transposed and len(_shape(weight)) == 2 and weight.axes[0] not in (*TABLES, EXPERT)


def _turned(architecture: Architecture, part: Part, array: np.ndarray, pairs: tuple[int, int]) -> np.ndarray:
    """Returns a weight, whose last axis, as far as positions turn it, is `pairs` [n, 2] or [2, n] transposed."""
    if not (architecture.rotary_halves and ROTATED.search(part.path)):
        return array
    turned, rest = np.split(array, [int(array.shape[-1] * architecture.rotary_share)], axis=-1)
    swapped = np.swapaxes(turned.reshape(*turned.shape[:-1], *pairs), -1, -2)
    return np.concatenate([swapped.reshape(turned.shape), rest], -1)


def _heads(architecture: Architecture, name: str, parts: list[Part]) -> int:
    """Returns the number of heads whose parts alternate in a tensor; 1 where each part is whole.

    Those of experts alternate column by column.
    """
    weight = parts[0].weight
    return weight.shape[-1 if weight.axes[0] == EXPERT else 1] if re.search(architecture.by_head, name) else 1


def _is_convolution(architecture: Architecture, name: str, shape: tuple[int, ...]) -> bool:
    return len(shape) == 2 and re.search(architecture.convolutions, name) is not None
