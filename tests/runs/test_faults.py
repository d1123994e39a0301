"""Faults at drawn moments of a run: the same command goes on after each, and ends with the bits of an unbroken run."""

import os
import random
import re
import shutil
import signal
import time

import pytest

from small_runs import command, ended, overrides, started

pytestmark = pytest.mark.thorough

STEPS = 40
FLAGS = overrides(
    train={"steps": STEPS, "evaluate_every": 10}, checkpoint={"every": 1, "keep": 3}, log={"every": 1, "report": False}
)
SIGNALS = {"SIGKILL": -signal.SIGKILL, "SIGTERM": 75, "SIGHUP": 75}


def flip(path, rng):
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= rng.randrange(1, 256)
    path.write_bytes(data)


def cut(path, rng):
    path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size)])


def a_file(damaged):
    """Returns what damages a drawn file of a folder by `damaged`."""

    def damage(folder, rng):
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
        damaged(rng.choice(files), rng)

    return damage


def a_plain_file(folder, rng):
    if folder.is_dir():  # it is a plain file already if the process before was stopped too early to put it aside
        shutil.rmtree(folder)
    folder.write_bytes(rng.randbytes(100))


def emptied(folder, rng):
    shutil.rmtree(folder)
    folder.mkdir()


# What happens to the newest checkpoint after a SIGTERM.
DAMAGES = {
    "a byte changed": a_file(flip),
    "a file cut": a_file(cut),
    "a file lost": a_file(lambda path, rng: path.unlink()),
    "a plain file": a_plain_file,
    "no files": emptied,
}


def saved(run):
    """Returns the steps of the checkpoints of a run folder, in order."""
    return sorted(int(path.name) for path in (run / "checkpoints").glob("*") if path.name.isdigit())


def resumed_at(errors):
    """Returns the step at which a process went on, or 0."""
    found = re.search(r"resuming at step (\d+)", errors)
    return int(found[1]) if found else 0


def weights(run):
    """Returns the file of the weights that a run ended with."""
    file = run.with_suffix(".safetensors")
    finished = command("export", f"--workdir={run}", "--format=safetensors", f"--output={file}")
    assert finished.returncode == 0, finished.stderr
    return file.read_bytes()


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """Returns the weights of a run that meets no fault."""
    run = tmp_path_factory.mktemp("unbroken") / "run"
    assert command("train", *FLAGS, f"--workdir={run}").returncode == 0
    return weights(run)


def stopped(run, number, step, seconds):
    """Returns exit code and stderr of a run that gets a signal some seconds after the checkpoint of a step."""
    with started("train", *FLAGS, f"--workdir={run}") as running:
        while max(saved(run), default=0) < step and running.poll() is None:
            time.sleep(0.002)
        time.sleep(seconds)
        os.kill(running.pid, number)
        return ended(running)


@pytest.mark.parametrize("fault", [*SIGNALS, *DAMAGES])
def test_a_run_that_meets_faults_loses_no_saved_step_and_ends_with_the_same_bits(fault, unbroken, tmp_path):
    rng, run, expected = random.Random(fault), tmp_path / "run", 0
    for step in sorted(rng.sample(range(4, STEPS - 8), 3)):
        name = fault if fault in SIGNALS else "SIGTERM"
        code, errors = stopped(run, signal.Signals[name], max(step, expected + 1), rng.uniform(0, 0.1))
        assert code == SIGNALS[name], errors
        # A damaged checkpoint is there before the process begins, which then may be asked to stop before it trains.
        assert resumed_at(errors) == expected or errors == f"stopped by {name}\n"
        if fault in DAMAGES:
            DAMAGES[fault](run / "checkpoints" / str(saved(run)[-1]), rng)
        expected = saved(run)[-2 if fault in DAMAGES else -1]
    finished = command("train", *FLAGS, f"--workdir={run}")
    assert (finished.returncode, resumed_at(finished.stderr)) == (0, expected), finished.stderr
    assert weights(run) == unbroken
