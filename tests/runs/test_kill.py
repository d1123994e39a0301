"""After faults at any moment, the same command resumes the run, which ends with the bits of an uninterrupted one."""

import functools
import os
import re
import signal
import time

import jax
import numpy as np
import pytest

from fxf.runs import run
from fxf.tasks.reversal import Reversal
from fxf.training import checkpoint
from helpers import one_device
from small_runs import command, ended, no_file_larger_than, overrides, records, started

STEPS = 22
# Saves after each call of the loop, so also between two records.
FLAGS, UNSAVED = (
    overrides(train={"steps": STEPS}, checkpoint={"every": 0, "minutes": minutes}, log={"every": 3})
    for minutes in (1e-9, 0.0)
)
SAVING = 0.05  # seconds after a checkpoint is complete, during the next save, which takes about 0.07 s


@pytest.fixture(scope="module")
def sharing():
    """Lets the commands in this process share programs, and compile none for answers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "train", functools.partial(run.train, kept={}))
        patch.setattr(Reversal, "test", lambda *_: {"exact_match": 0.0})
        yield


def saved(folder):
    """Returns the steps of a run folder's checkpoints, in order."""
    return sorted(int(path.name) for path in (folder / "checkpoints").glob("*") if path.name.isdigit())


def stopped(folder, step, number, seconds=0.0):
    """Sends a run a signal some seconds after it saved a step; returns its exit code and standard error."""
    with started("train", *FLAGS, f"--workdir={folder}") as running:
        while max(saved(folder), default=0) < step and running.poll() is None:
            time.sleep(0.01)
        time.sleep(seconds)
        os.kill(running.pid, number)
        code, errors = ended(running)
    assert not (folder / "result.json").exists()
    return code, errors


def state(folder):
    ((step, found, _),) = checkpoint.load(folder / "checkpoints", run.load(folder)[0].state_shapes(one_device()))
    assert step == STEPS
    return jax.tree.map(np.asarray, found)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory, sharing):
    """A run without faults."""
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    assert command("train", *UNSAVED, f"--workdir={folder}").returncode == 0
    return folder


def test_a_run_hit_by_kills_signals_and_a_full_disk_has_the_bits_of_an_unbroken_one(unbroken, tmp_path):
    again = ("train", *FLAGS, f"--workdir={tmp_path}")
    stopped(tmp_path, 3, signal.SIGKILL, SAVING)
    code, errors = stopped(tmp_path, saved(tmp_path)[-1] + 3, signal.SIGTERM)  # a slow process may be killed later
    assert code == 75
    stopped_at = int(re.search(r"stopped at step (\d+), which is saved", errors)[1])
    steps = saved(tmp_path)
    assert steps[-1] == stopped_at < STEPS

    # The largest file of a checkpoint has 20 kB, and metrics.jsonl has 6.
    with no_file_larger_than(16_000):
        full = command(*again)
    assert full.returncode == 2, full.stderr
    assert [line for line in full.stderr.splitlines() if not line.startswith("step ")] == [
        f"{tmp_path}: resuming at step {stopped_at}",
        f"error: {tmp_path}: File too large; "
        f"checkpoints of steps {', '.join(map(str, steps))} are kept; once that is mended, the same command resumes",
    ]

    finished = command(*again)
    assert finished.returncode == 0, finished.stderr
    assert f"resuming at step {stopped_at}" in finished.stderr
    jax.tree.map(np.testing.assert_array_equal, state(tmp_path), state(unbroken))
    logged = [[(row["step"], row.get("loss")) for row in records(folder)] for folder in (tmp_path, unbroken)]
    assert logged[0] == logged[1]
