"""Several processes that train together through JAX's multi-controller runtime.

Every process runs the same program over the devices of all, and stops at the same step. The processes agree on each
decision that depends on the clock or the signals of one.
"""

import json
import os
import re
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from fxf.base.devices import require_devices
from fxf.base.errors import UserError
from fxf.base.files import digest
from fxf.base.signals import EXIT_INTERRUPTED
from fxf.training.parallel import ParallelConfig

HEARTBEAT_SECONDS = 20  # without a heartbeat, after which a process counts as lost
OWN_FAILURES = ("RESOURCE_EXHAUSTED", "INVALID_ARGUMENT")  # runtime errors of JAX that are the process's own


def join(config: ParallelConfig) -> None:
    """Connects this process to the others before JAX computes anything; does nothing for a run in one process.

    Raises:
      UserError: `parallel.processes` is 0 and there is no launcher, or the first process cannot listen at its port.
    """
    if config.processes == 1 or jax.distributed.is_initialized():
        return
    # fxf.base.signals handles signals instead.
    jax.config.update("jax_enable_preemption_service", False)
    options: dict[str, Any] = {f"{name}_timeout_seconds": HEARTBEAT_SECONDS for name in ("heartbeat", "shutdown")}
    if config.processes:
        place, others = config.coordinator, f"{config.processes} processes"
        options |= {"coordinator_address": place, "num_processes": config.processes, "process_id": config.process}
        options["cluster_detection_method"] = "deactivate"
        if config.process == 0:
            try:
                socket.create_server(("", int(place.rpartition(":")[2]))).close()
            except (OSError, OverflowError) as error:  # JAX would crash, or share the port with another run
                raise UserError(f"parallel.coordinator: {place}: {error}") from None
        what = f"waits five minutes for {others} to meet at {place}; then JAX aborts"
        print(f"process {config.process}: {what}", file=sys.stderr, flush=True)
    try:
        jax.distributed.initialize(**options)
    except (ValueError, KeyError) as error:
        none = "0 asks SLURM, Open MPI or a TPU pod, and none has started this process"
        raise UserError(f"parallel.processes: {none}: {_first_line(error)}") from None


@contextmanager
def ending_with_the_others() -> Iterator[None]:
    """Ends this process at once, with one line and exit code 75, if it lost another.

    The normal exit closes the checkpoints and JAX's runtime, which would wait for the others.
    """
    try:
        yield
    except (jax.errors.JaxRuntimeError, TimeoutError, ValueError) as error:
        # A jitted function raises a ValueError with the code that a JaxRuntimeError begins with.
        is_of_jax = not isinstance(error, ValueError) or re.match("[A-Z_]+: ", str(error))
        if jax.process_count() == 1 or not is_of_jax or str(error).startswith(OWN_FAILURES):
            raise
        what = "lost another one; the same command resumes from the newest checkpoint"
        print(f"error: {_who()}: {what} ({_first_line(error)})", file=sys.stderr, flush=True)
        os._exit(EXIT_INTERRUPTED)


def require_same_config(config: Mapping[str, Any]) -> None:
    """Raises a UserError if the processes have different configs; every process must call it."""
    here = {**config, "parallel": {**config["parallel"], "process": 0}}
    number = np.frombuffer(digest(json.dumps(here).encode()).encode(), np.uint8)
    if (multihost_utils.process_allgather(number) != number).any():
        raise UserError(f"{_who()}: another process has another config, data or code; start all by the same command")


def is_first() -> bool:
    """Returns whether this is the process that writes and prints for all.

    Raises:
      UserError: the machine has no device of the platform that the environment names.
    """
    require_devices()
    return jax.process_index() == 0


def barrier() -> None:
    """Waits until every process has called it."""
    multihost_utils.sync_global_devices("fxf")


def any_of(value: bool) -> bool:
    """Returns whether any process has True; every process must call it."""
    return bool(np.any(multihost_utils.process_allgather(np.array(value))))


def of_first(number: int) -> int:
    """Returns the first process's number; every process must call it."""
    return int(multihost_utils.broadcast_one_to_all(np.int32(number)))


def _who() -> str:
    return f"process {jax.process_index()} of {jax.process_count()}"


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]
