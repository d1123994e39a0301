"""Starting JAX, with one line about an environment variable or a device that it cannot use."""

import contextlib
import contextvars
import os
import re
import sys
from collections.abc import Iterator, Sequence
from glob import glob
from typing import Any

from fxf.errors import UserError
from fxf.machine.kept_memory import keep_memory
from fxf.machine.status import stage

MOST_CPU_DEVICES = 1024  # many more would take minutes to start
# Variables that choose devices; an error line shows their values.
VARIABLES = ("JAX_PLATFORMS", "JAX_NUM_CPU_DEVICES", "CUDA_VISIBLE_DEVICES", "XLA_FLAGS")

# Where Linux shows accelerators: of NVIDIA (also under Windows), AMD, Google, Intel and Amazon.
ACCELERATORS = (
    "/dev/nvidia*",
    "/dev/dxg",
    "/dev/kfd",
    "/dev/dri/render*",
    "/dev/accel*",
    "/dev/vfio/[0-9]*",
    "/dev/neuron*",
)

# The axes of a mesh of devices: the first two shard the rows of a batch, then its sequences, then heads
# (training/sharding.py).
DATA, FSDP, SEQUENCE, TENSOR = AXES = ("data", "fsdp", "sequence", "tensor")


@stage("importing JAX")
def start_jax() -> None:
    """Imports JAX.

    Raises:
      UserError: JAX, XLA or fxf cannot work with the value of an environment variable.
    """
    if "jax" in sys.modules:
        return
    counts = {
        "JAX_NUM_CPU_DEVICES": os.environ.get("JAX_NUM_CPU_DEVICES", ""),
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", "").partition("host_platform_device_count=")[2],
    }
    for name, text in counts.items():
        if (found := re.match(r"\d+", text)) and (len(found[0]) > 9 or int(found[0]) > MOST_CPU_DEVICES):
            raise UserError(f"{name}: expected at most {MOST_CPU_DEVICES} devices of a CPU, got {found[0]}")
    if os.environ.get("XLA_FLAGS") and (why := _refused_flags()):
        raise UserError(f"XLA_FLAGS={os.environ['XLA_FLAGS']}: {why}")
    try:
        import jax
    except ValueError as error:
        raise UserError(f"JAX does not start: {error}{_environment()}") from None
    if jax.config.jax_disable_jit:  # type: ignore[attr-defined]
        raise UserError("JAX_DISABLE_JIT: fxf compiles its programs before it calls them; unset it")
    if sys.platform == "linux" and not jax.config.jax_platforms and not any(map(glob, ACCELERATORS)):  # type: ignore[attr-defined]
        jax.config.update("jax_platforms", "cpu")  # else wheels for accelerators that are not here fill the screen
    from fxf.machine.kept_programs import keep_programs

    keep_programs(jax.config)


_targets: contextvars.ContextVar[Sequence[Any]] = contextvars.ContextVar("targets")


def target_devices() -> Sequence[Any]:
    """Returns the devices that programs are compiled for: those of JAX, or of `compiling_for`."""
    import jax

    return _targets.get(()) or jax.devices()


@contextlib.contextmanager
def compiling_for(devices: Sequence[Any]) -> Iterator[None]:
    """Returns a context in which programs are made for other devices than those of JAX, which need not be here."""
    token = _targets.set(devices)
    try:
        yield
    finally:
        _targets.reset(token)


_mesh: contextvars.ContextVar[Any] = contextvars.ContextVar("mesh", default=None)


def target_mesh() -> Any:
    """Returns the mesh over which the arrays of a traced function are sharded, or None if it is unknown."""
    return _mesh.get()


@contextlib.contextmanager
def over_mesh(mesh: Any) -> Iterator[None]:
    """Returns a context in which functions are traced for arrays that are sharded over a mesh with the axes `AXES`."""
    token = _mesh.set(mesh)
    try:
        yield
    finally:
        _mesh.reset(token)


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
        raise UserError(
            f"no device: {why}{_environment()}; unset JAX_PLATFORMS to use the devices that exist"
        ) from None


def _environment() -> str:
    set_here = [f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ]
    return f" ({', '.join(set_here)})" if set_here else ""


def _refused_flags() -> str:
    """Returns XLA's message if it refuses XLA_FLAGS, else nothing.

    A child process reads the flags, because XLA ends a process whose flags it refuses.
    """
    from jaxlib import xla_client

    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writing, 2)
        xla_client.CompileOptions()  # reads the flags
        os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8", errors="replace") as file:
        lines = [line for line in file.read().splitlines() if "] " in line]
    if os.waitpid(child, 0)[1] == 0:
        return ""
    return lines[0].split("] ", 1)[1] if lines else "XLA cannot read them"
