"""Several processes that train together, by JAX's multi-controller runtime; a run in one process joins nothing.

Every process runs the same program over the devices of all, and stops at the same step. What a process decides by its
own clock or signals is agreed upon first.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from fxf.config import differing_keys
from fxf.errors import UserError
from fxf.machine.signals import EXIT_INTERRUPTED
from fxf.training.sharding import ParallelConfig

HEARTBEAT_SECONDS = 20  # without a sign of life, after which a process counts as lost
START_SECONDS = 300  # for all processes to come
OWN_FAILURES = ("RESOURCE_EXHAUSTED", "INVALID_ARGUMENT")  # of JAX's runtime, which no other process is the cause of


def join(config: ParallelConfig) -> None:
    """Connects this process to the others, before JAX computes anything; a run in one process has none.

    Raises:
      UserError: `parallel.processes` is 0 and no launcher is found, or the others did not come in time.
    """
    if config.processes == 1 or jax.distributed.is_initialized():
        return
    # A signal is heard by fxf.machine.signals, in Python.
    jax.config.update("jax_enable_preemption_service", False)
    given: dict[str, Any] = {}
    if config.processes:
        given = {
            "coordinator_address": config.coordinator,
            "num_processes": config.processes,
            "process_id": config.process,
            "cluster_detection_method": "deactivate",
        }
        others = f"{config.processes} processes to meet at {config.coordinator}"
        print(f"process {config.process}: waiting for {others}", file=sys.stderr, flush=True)
    try:
        jax.distributed.initialize(
            **given,
            initialization_timeout=START_SECONDS,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=HEARTBEAT_SECONDS,
        )
    except (ValueError, KeyError) as error:
        what = "0 asks SLURM, Open MPI or a TPU pod, and none has started this process"
        raise UserError(f"parallel.processes: {what}: {_first_line(error)}") from None
    except jax.errors.JaxRuntimeError as error:
        raise UserError(f"parallel.processes: could not meet the others: {_first_line(error)}") from None


@contextmanager
def ending_with_the_others() -> Iterator[None]:
    """Ends this process at once, with one line and an exit code of its own, where it lost another.

    The usual way out, through closing the checkpoints and leaving JAX's runtime, waits for the others.
    """
    try:
        yield
    except (jax.errors.JaxRuntimeError, TimeoutError) as error:
        if jax.process_count() == 1 or str(error).startswith(OWN_FAILURES):
            raise
        what = "lost another one; the same command goes on from the newest checkpoint"
        print(f"error: {_who()}: {what} ({_first_line(error)})", file=sys.stderr, flush=True)
        os._exit(EXIT_INTERRUPTED)


def require_same_config(config: Mapping[str, Any]) -> None:
    """Raises a UserError, in every process, if another has another config; all call it together."""
    if jax.process_count() == 1:
        return
    text = np.frombuffer(json.dumps(config).encode(), np.uint8)
    longest = multihost_utils.process_allgather(np.array(len(text))).max()
    for i, row in enumerate(multihost_utils.process_allgather(np.pad(text, (0, longest - len(text))))):
        there = json.loads(row.tobytes().rstrip(b"\0"))
        if differing := [key for key in differing_keys(there, config) if key != "parallel.process"]:
            raise UserError(f"{_who()}: process {i} has another config; differing keys: {', '.join(differing)}")


def is_first() -> bool:
    """Tells whether this is the process that writes and prints for all."""
    return jax.process_index() == 0


def barrier() -> None:
    """Returns when every process is here."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices("fxf")


def any_of(told: bool) -> bool:
    """Returns whether any process is told so; all ask together."""
    return told if jax.process_count() == 1 else bool(np.any(multihost_utils.process_allgather(np.array(told))))


def of_first(number: int) -> int:
    """Returns the number that the first process has; all ask together."""
    return number if jax.process_count() == 1 else int(multihost_utils.broadcast_one_to_all(np.int32(number)))


def _who() -> str:
    return f"process {jax.process_index()} of {jax.process_count()}"


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]
