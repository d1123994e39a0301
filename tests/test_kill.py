"""SIGKILL at any moment, then the same command again: the run ends with the bits of one that was never killed."""

import json
import subprocess
import sys
import time

import jax
import numpy as np

from fxf import run
from fxf.training import checkpoint
from runs import ROOT, environment, overrides, script

FLAGS = overrides(train={"steps": 90}, checkpoint={"every": 2}, log={"every": 2})
# Lines of metrics.jsonl to wait for, and seconds more: a save takes about 0.07 s, so these fall in and between saves.
KILL_POINTS = [(1, 0.0), (23, 0.05)]


def lines(workdir):
    path = workdir / "metrics.jsonl"
    return path.read_text().splitlines() if path.exists() else []


def train_and_kill(workdir, n_lines, seconds):
    command = [sys.executable, "experiments/train.py", *FLAGS, f"--workdir={workdir}"]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL, env=environment())
    try:
        while len(lines(workdir)) < n_lines and process.poll() is None:
            time.sleep(0.001)
        time.sleep(seconds)
    finally:
        process.kill()
        process.wait()
    assert not (workdir / "result.json").exists()


def final_state(workdir):
    step, state, _ = checkpoint.load(workdir / "checkpoints", run.load(workdir)[0].state_shapes())
    assert step == 90
    return jax.tree.map(np.asarray, state)


def test_a_killed_run_resumes_to_the_same_bits(tmp_path):
    unbroken, killed = tmp_path / "unbroken", tmp_path / "killed"
    assert script("train", *FLAGS, f"--workdir={unbroken}").returncode == 0
    for n_lines, seconds in KILL_POINTS:
        train_and_kill(killed, n_lines, seconds)
    finished = script("train", *FLAGS, f"--workdir={killed}")
    assert finished.returncode == 0, finished.stderr
    assert "resuming at step" in finished.stderr
    jax.tree.map(np.testing.assert_array_equal, final_state(killed), final_state(unbroken))
    steps, losses = ([json.loads(line).get(key) for line in lines(killed)] for key in ("step", "loss"))
    assert steps == [json.loads(line)["step"] for line in lines(unbroken)]
    assert losses == [json.loads(line).get("loss") for line in lines(unbroken)]
