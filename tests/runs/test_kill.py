"""A signal or a full disk, then the same command again: the run ends with the bits of one that never stopped."""

import json
import os
import re
import signal
import time

import jax
import numpy as np

from fxf.runs import run
from fxf.training import checkpoint
from helpers import one_device
from small_runs import command, ended, no_file_larger_than, overrides, started

STEPS = 22
# The clock saves after each call of the loop, so also between two records.
FLAGS, UNSAVED = (
    overrides(train={"steps": STEPS}, checkpoint={"every": 0, "minutes": minutes}, log={"every": 2})
    for minutes in (1e-9, 0.0)
)
SAVING = 0.05  # seconds after a line of metrics.jsonl, while a save, which takes about 0.07 s, goes on


def lines(workdir):
    path = workdir / "metrics.jsonl"
    return path.read_text().splitlines() if path.exists() else []


def train_and_stop(workdir, n_lines, seconds, number=signal.SIGKILL):
    """Returns the exit code and standard error of a run that gets the signal."""
    with started("train", *FLAGS, f"--workdir={workdir}") as running:
        while len(lines(workdir)) < n_lines and running.poll() is None:
            time.sleep(0.005)
        time.sleep(seconds)
        os.kill(running.pid, number)
        code, errors = ended(running)
    assert not (workdir / "result.json").exists()
    return code, errors


def final_state(workdir, shapes):
    ((step, state, _),) = checkpoint.load(workdir / "checkpoints", shapes)
    assert step == STEPS
    return jax.tree.map(np.asarray, state)


def test_a_run_killed_asked_to_stop_and_left_without_room_ends_with_the_bits_of_one_that_never_stopped(tmp_path):
    unbroken, workdir = tmp_path / "unbroken", tmp_path / "run"
    assert command("train", *UNSAVED, f"--workdir={unbroken}").returncode == 0
    again = ("train", *FLAGS, f"--workdir={workdir}")

    train_and_stop(workdir, 3, SAVING)
    code, errors = train_and_stop(workdir, 4, 0.0, signal.SIGTERM)
    assert code == 75
    stopped_at = int(re.search(r"stopped at step (\d+), which is saved", errors)[1])
    saved = sorted(int(path.name) for path in (workdir / "checkpoints").iterdir())
    assert saved[-1] == stopped_at < STEPS

    # The largest file of a checkpoint is of 20 kB, and metrics.jsonl of 6.
    with no_file_larger_than(16_000):
        stopped = command(*again)
    assert stopped.returncode == 2, stopped.stderr
    assert [line for line in stopped.stderr.splitlines() if not line.startswith("step ")] == [
        f"{workdir}: resuming at step {stopped_at}",
        f"error: {workdir}: File too large; "
        f"checkpoints of steps {', '.join(map(str, saved))} are kept; once that is mended, the same command resumes",
    ]

    finished = command(*again)
    assert finished.returncode == 0, finished.stderr
    assert f"resuming at step {stopped_at}" in finished.stderr
    shapes = run.load(workdir)[0].state_shapes(one_device())
    jax.tree.map(np.testing.assert_array_equal, *(final_state(folder, shapes) for folder in (workdir, unbroken)))
    steps, losses = ([json.loads(line).get(key) for line in lines(workdir)] for key in ("step", "loss"))
    assert steps == [json.loads(line)["step"] for line in lines(unbroken)]
    assert losses == [json.loads(line).get("loss") for line in lines(unbroken)]
