"""Safetensors files, and params in them, where each weight is named by its path ('blocks/attention/query')."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fxf.base.errors import UserError, nearest
from fxf.base.files import require_file, write_atomically
from fxf.base.weights import Params, flatten

FLOATS = ("F64", "F32", "F16", "BF16")  # safetensors' names of dtypes


def save_weights(path: Path, params: Params) -> None:
    """Writes the params, each under its path."""
    write_tensors(path, {name: np.asarray(value) for name, value in flatten(jax.device_get(params)).items()}, {})


def read_weights(path: Path) -> dict[str, np.ndarray]:
    """Returns the weights of a safetensors file by path, float32.

    Raises:
      UserError: the file cannot be read, or a tensor is not floating-point.
    """
    return {name: as_weights(str(path), name, tensor) for name, tensor in open_tensors(path).items()}


def as_weights(where: str, name: str, tensor: Any) -> np.ndarray:
    """Returns a tensor of `open_tensors` in float32.

    Raises:
      UserError: the tensor is not floating-point, or has a quantized dtype such as F8_E4M3, whose scales are elsewhere.
    """
    if (kind := tensor.get_dtype()) not in FLOATS:
        raise UserError(f"{where}: {name} has type {kind}; expected floating-point numbers, {', '.join(FLOATS)}")
    return np.asarray(tensor[()], np.float32)


def check_shapes(where: str, found: Mapping[str, tuple[int, ...]], expected: Mapping[str, tuple[int, ...]]) -> None:
    """Raises a UserError for the first array that is missing, unexpected or of another shape."""
    for name, shape in expected.items():
        if name not in found:
            raise UserError(f"{where}: {name} is absent; expected shape {list(shape)}{nearest(name, found)}")
        if found[name] != shape:
            raise UserError(f"{where}: {name} has shape {list(found[name])}; expected {list(shape)}")
    for name in found:
        if name not in expected:
            raise UserError(f"{where}: {name} is not a weight of this model{nearest(name, expected)}")


def write_tensors(path: Path, arrays: Mapping[str, np.ndarray], metadata: dict[str, str]) -> None:
    """Writes a safetensors file."""
    from safetensors.numpy import save

    # The library's `save_file` would make the file readable by its owner alone.
    write_atomically(path, save({name: np.asarray(x, order="C") for name, x in arrays.items()}, metadata))


def open_tensors(path: Path) -> dict[str, Any]:
    """Opens the tensors of a safetensors file, by name, as the library's slices: `slice[()]` reads a whole tensor.

    Raises:
      UserError: the file cannot be read.
    """
    from safetensors import safe_open

    require_file(path)

    try:
        file = safe_open(path, "np")
    except Exception as error:  # the library has its own classes of errors
        raise UserError(f"{path}: cannot read it as safetensors: {error}{_pointer(path)}") from None
    return {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118  `file` is not a dict.


def _pointer(path: Path) -> str:
    """Returns a hint if the file is only a pointer of Git LFS, else ""."""
    with path.open("rb") as file:
        return "; it is a pointer of Git LFS, which 'git lfs pull' replaces" if file.read(8) == b"version " else ""
