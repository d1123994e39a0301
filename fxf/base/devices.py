"""Starting JAX, the devices that programs are compiled for, and the axes of their mesh."""

import contextlib
import contextvars
import math
import os
import sys
from collections.abc import Iterator, Sequence
from glob import glob
from typing import Any

from fxf.base.errors import UserError
from fxf.base.kept_memory import keep_memory
from fxf.base.kept_programs import keep_programs
from fxf.base.status import stage

# Variables that choose devices; an error line shows their values.
VARIABLES = ("JAX_PLATFORMS", "JAX_NUM_CPU_DEVICES", "CUDA_VISIBLE_DEVICES", "XLA_FLAGS")

# Device files of accelerators on Linux: NVIDIA (also under Windows), AMD and Intel, Google, Amazon.
ACCELERATORS = (
    *("/dev/nvidia*", "/dev/dxg", "/dev/kfd", "/dev/dri/render*", "/dev/accel*", "/dev/vfio/[0-9]*", "/dev/neuron*"),
)

# The axes of a mesh of devices (training/sharding.py): the first three shard a batch's rows, the fourth its sequences,
# the last one heads and hidden units.
DATA, FSDP, EXPERT, SEQUENCE, TENSOR = AXES = ("data", "fsdp", "expert", "sequence", "tensor")
ROWS = (DATA, FSDP, EXPERT)

_targets: contextvars.ContextVar[Sequence[Any]] = contextvars.ContextVar("targets", default=())
_mesh: contextvars.ContextVar[Any] = contextvars.ContextVar("mesh", default=None)
_in_float32: contextvars.ContextVar[bool] = contextvars.ContextVar("in_float32", default=False)


@stage("importing JAX")
def start_jax() -> None:
    """Imports JAX. Raises a UserError if it cannot work with the value of an environment variable."""
    if "jax" in sys.modules:
        return
    try:
        import jax
    except ValueError as error:
        raise UserError(f"JAX does not start: {error}{_environment()}") from None
    config: Any = jax.config
    if sys.platform == "linux" and not config.jax_platforms and not any(map(glob, ACCELERATORS)):
        config.update("jax_platforms", "cpu")  # else JAX's plugins for absent accelerators print errors
    keep_programs(config)


def require_devices() -> list[Any]:
    """Returns the devices of JAX. From now on the process keeps the memory that it frees.

    Raises:
      UserError: the machine has no device of the platform that the environment names.
    """
    import jax

    keep_memory(jax.config)
    try:
        return jax.devices()
    except (RuntimeError, AssertionError) as error:
        why = str(error).strip().split("\n")[0] or "JAX has no such devices here"
        advice = "unset JAX_PLATFORMS to use the devices that exist"
        raise UserError(f"no device: {why}{_environment()}; {advice}") from None


def _environment() -> str:
    set_here = [f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ]
    return f" ({', '.join(set_here)})" if set_here else ""


def target_devices() -> Sequence[Any]:
    """Returns the devices that programs are compiled for: those of JAX, or of `compiling_for`."""
    import jax

    return _targets.get() or jax.devices()


def compiling_for(devices: Sequence[Any]) -> Any:
    """Returns a context in which programs are compiled for these devices, which need not be present."""
    return setting(_targets, devices)


def target_mesh() -> Any:
    """Returns the mesh over which the arrays of a traced function are sharded, or None if it is unknown."""
    return _mesh.get()


def devices_along(axis: str) -> int:
    """Returns the number of devices along an axis of `target_mesh`; 1 if the mesh is unknown."""
    mesh = _mesh.get()
    return 1 if mesh is None else mesh.shape[axis]


def sums_in_float32() -> bool:
    """Returns whether devices must sum the gradients of weights in float32."""
    return _in_float32.get()


def divides(mesh: Any, axes: Sequence[str], length: int) -> bool:
    """Returns whether these axes of a mesh shard an array's axis of this length evenly."""
    return length % math.prod(mesh.shape[axis] for axis in axes) == 0


@contextlib.contextmanager
def over_mesh(mesh: Any, in_float32: bool = False) -> Iterator[None]:
    """Returns a context in which functions are traced for arrays that are sharded over a mesh with the axes `AXES`.

    Args:
      in_float32: what `sums_in_float32` returns inside.
    """
    with setting(_mesh, mesh), setting(_in_float32, in_float32):
        yield


@contextlib.contextmanager
def setting(variable: contextvars.ContextVar[Any], value: Any) -> Iterator[None]:
    """Returns a context in which a variable has this value; it also decorates a function."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
