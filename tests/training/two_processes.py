"""Trains on the two devices of each of two processes, and prints how far the numbers are from those of one device.

tests/training/test_sharding.py runs this twice at once, after eight_devices.py has left its numbers in the folder. In
the end the second process is killed, and the first one has to notice.
"""

import json
import os
import pickle
import signal
import sys
import time
from pathlib import Path

from eight_devices import distance, distances, go_on, read, train, whole

from fxf.training import processes
from fxf.training.parallel import ParallelConfig


def compare(folder, parallel):
    """Returns the distances of loss, gradient and params."""
    start = folder / "start.pickle"
    return distances(read(folder / "one.npz"), train(parallel, start=lambda: pickle.loads(start.read_bytes())))


if __name__ == "__main__":
    folder, coordinator, process = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    parallel = {"processes": 2, "coordinator": coordinator, "process": process}
    processes.join(ParallelConfig(**parallel))
    figures = {
        "distances": compare(folder, {**parallel, "fsdp": 2}),
        "resumed": distance(
            whole(go_on(folder / "two", {**parallel, "fsdp": 4}).params), read(folder / "unbroken.npz")
        ),
    }
    done = folder / "done"
    if process == 1:
        while not done.exists():  # the first one may be a collective behind
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    print(json.dumps(figures), flush=True)
    done.touch()
    with processes.ending_with_the_others():
        processes.barrier()
