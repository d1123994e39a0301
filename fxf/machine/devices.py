"""Starting JAX: what the environment asks of it, and what it has not, in one line."""

import os
import sys
from typing import Any

from fxf.errors import UserError

# Variables that choose devices, for the line about what went wrong.
VARIABLES = ("JAX_PLATFORMS", "JAX_NUM_CPU_DEVICES", "CUDA_VISIBLE_DEVICES", "XLA_FLAGS")


def start_jax() -> None:
    """Imports JAX.

    Raises:
      UserError: a variable of the environment that JAX or XLA reads holds what it cannot read.
    """
    if "jax" in sys.modules:
        return
    if os.environ.get("XLA_FLAGS") and (why := _refused_flags()):
        raise UserError(f"XLA_FLAGS={os.environ['XLA_FLAGS']}: {why}")
    try:
        import jax  # noqa: F401
    except ValueError as error:
        raise UserError(f"JAX does not start: {error}{_environment()}") from None


def require_devices() -> list[Any]:
    """Returns the devices of JAX.

    Raises:
      UserError: there are none of the platform that the environment asks for.
    """
    import jax

    try:
        return jax.devices()
    except (RuntimeError, AssertionError) as error:
        why = str(error).strip().split("\n")[0] or "JAX has no such devices here"
        raise UserError(f"no device: {why}{_environment()}; unset JAX_PLATFORMS to use what there is") from None


def _environment() -> str:
    set_here = [f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ]
    return f" ({', '.join(set_here)})" if set_here else ""


def _refused_flags() -> str:
    """Returns what XLA says of XLA_FLAGS if it refuses them, which ends the process: a copy of this one asks."""
    from jaxlib import xla_client

    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writing, 2)
        xla_client.CompileOptions()  # reads them
        os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8", errors="replace") as file:
        said = [line for line in file.read().splitlines() if "] " in line]
    if os.waitpid(child, 0)[1] == 0:
        return ""
    return said[0].split("] ", 1)[1] if said else "XLA cannot read them"
