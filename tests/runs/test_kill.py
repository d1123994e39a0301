"""A signal or a full disk, then the same command again: the run ends with the bits of one that never stopped."""

import json
import os
import re
import shutil
import signal
import time

import jax
import numpy as np
import pytest

from fxf.runs import run
from fxf.training import checkpoint
from helpers import one_device
from small_runs import overrides, script, started

FLAGS = overrides(train={"steps": 30}, checkpoint={"every": 2}, log={"every": 2})
SAVING = 0.05  # seconds after a line of metrics.jsonl, while a save, which takes about 0.07 s, goes on


def lines(workdir):
    path = workdir / "metrics.jsonl"
    return path.read_text().splitlines() if path.exists() else []


def train_and_stop(workdir, n_lines, seconds, number=signal.SIGKILL):
    """Returns the exit code and standard error of a run that gets the signal."""
    with started("train", *FLAGS, f"--workdir={workdir}") as running:
        while len(lines(workdir)) < n_lines and not running.ended():
            time.sleep(0.001)
        time.sleep(seconds)
        os.kill(running.pid, number)
        finished = running.finished()
    assert not (workdir / "result.json").exists()
    return finished.returncode, finished.stderr


def final_state(workdir):
    step, state, _ = checkpoint.load(workdir / "checkpoints", run.load(workdir)[0].state_shapes(one_device()))
    assert step == 30
    return jax.tree.map(np.asarray, state)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("unbroken")
    assert script("train", *FLAGS, f"--workdir={workdir}").returncode == 0
    return workdir


def test_a_run_killed_and_asked_to_stop_ends_with_the_bits_of_one_that_never_stopped(unbroken, tmp_path):
    train_and_stop(tmp_path, 3, SAVING)
    code, errors = train_and_stop(tmp_path, 6, 0.0, signal.SIGTERM)
    assert code == 75
    stopped_at = int(re.search(r"stopped at step (\d+), which is saved", errors)[1])
    assert checkpoint.load(tmp_path / "checkpoints", run.load(tmp_path)[0].state_shapes(one_device()))[0] == stopped_at
    finished = script("train", *FLAGS, f"--workdir={tmp_path}")
    assert finished.returncode == 0, finished.stderr
    assert f"resuming at step {stopped_at}" in finished.stderr
    jax.tree.map(np.testing.assert_array_equal, final_state(tmp_path), final_state(unbroken))
    steps, losses = ([json.loads(line).get(key) for line in lines(tmp_path)] for key in ("step", "loss"))
    assert steps == [json.loads(line)["step"] for line in lines(unbroken)]
    assert losses == [json.loads(line).get("loss") for line in lines(unbroken)]


def test_a_save_without_room_ends_in_one_line_and_the_run_goes_on_when_there_is_some(unbroken, tmp_path):
    shutil.copytree(unbroken, tmp_path, dirs_exist_ok=True)
    shutil.rmtree(tmp_path / "checkpoints" / "30")
    (tmp_path / "result.json").unlink()
    # The largest file of a checkpoint is of 20 kB, and metrics.jsonl of 6.
    stopped = script("train", *FLAGS, f"--workdir={tmp_path}", largest_file=16_000)
    assert stopped.returncode == 2, stopped.stderr
    assert [line for line in stopped.stderr.splitlines() if not line.startswith("step ")] == [
        f"{tmp_path}: resuming at step 28",
        f"error: {tmp_path}: a file would be larger than the limit (File too large); "
        "checkpoints of steps 26, 28 are kept; with that mended, the same command goes on",
    ]
    finished = script("train", *FLAGS, f"--workdir={tmp_path}")
    assert "resuming at step 28" in finished.stderr
    jax.tree.map(np.testing.assert_array_equal, final_state(tmp_path), final_state(unbroken))
