"""Trains on two processes with two devices each, and prints the differences from one device.

tests/training/test_sharding.py runs this after eight_devices.py has left its numbers in the folder. It forks the two
before JAX starts. At the end the second one is killed, and the first one must notice; then this process prints the
exit codes of both.
"""

import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path

import jax
import numpy as np
from eight_devices import distances, read, resumed, start_jax, train
from jax.experimental import multihost_utils

from fxf.training import processes
from fxf.training.checkpoint import CheckpointConfig, Checkpoints
from fxf.training.parallel import ParallelConfig
from fxf.training.sharding import make_layout


def take_part(folder, coordinator, process):
    start_jax(2)
    parallel = {"processes": 2, "coordinator": coordinator, "process": process}
    processes.join(ParallelConfig(**parallel))
    figures = {
        "distances": distances(read(folder / "one.npz"), train({**parallel, "fsdp": 2})),
        "resumed": resumed(folder / "two", {**parallel, "fsdp": 2}),
        "bytes": bytes_of_restoring(folder, {**parallel, "fsdp": 2}),
    }
    done = folder / "done"
    if process == 1:
        while not done.exists():  # the first one may still be in a collective
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    print(json.dumps(figures), flush=True)
    done.touch()
    with processes.ending_with_the_others():
        processes.barrier()


def bytes_of_restoring(folder, parallel):
    """Returns the bytes that the second process reads to restore 16 MB that each process has a copy of."""
    layout = make_layout(ParallelConfig(**parallel), jax.devices())
    numbers = np.random.default_rng(0).normal(size=2**22).astype(np.float32)  # incompressible
    state = {"weights": jax.device_put(numbers, layout.replicated)}
    checkpoints = Checkpoints(folder / "copies", CheckpointConfig(), {})
    checkpoints.save(1, state, {})
    checkpoints.wait()
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state)
    before = read_so_far()
    _, restored, _ = checkpoints.restore(shapes)
    assert all((np.asarray(shard.data) == numbers).all() for shard in restored["weights"].addressable_shards)
    return int(multihost_utils.process_allgather(np.array(read_so_far() - before))[1])


def read_so_far():
    return int(Path("/proc/self/io").read_text().split()[1])


def forked(*arguments):
    """Returns the id of the forked process."""
    if number := os.fork():
        return number
    try:
        take_part(*arguments)
    except BaseException:
        traceback.print_exc()
    os._exit(1)


if __name__ == "__main__":
    folder, coordinator = Path(sys.argv[1]), sys.argv[2]
    numbers = [forked(folder, coordinator, process) for process in range(2)]
    print(json.dumps({"codes": [os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]) for number in numbers]}))
