"""Processes of a sweep: isolation of failures, restarts, stopping; each job is a script that takes no time."""

import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from fxf.sweeps import workers
from fxf.sweeps.workers import Job, last_line, run_all
from small_runs import HEARING, ROOT

# Writes result.json, but fails while its folder has a file `fail`, and kills itself if it has a file `kill`.
POINT = """
import os, pathlib, sys
folder = pathlib.Path(sys.argv[1])
print("started", os.environ.get("XLA_PYTHON_CLIENT_PREALLOCATE"), flush=True)
if (folder / "fail").exists():
    sys.exit("error: it fails\\n")
if (folder / "kill").exists():
    os.kill(os.getpid(), 9)
(folder / "result.json").write_text("{}")
"""


def make_jobs(directory, count):
    script = directory / "point.py"
    script.write_text(POINT)
    folders = [directory / f"point{i}" for i in range(count)]
    return [Job([sys.executable, "-S", str(script), str(folder)], folder) for folder in folders]


def mark(job, name):
    job.folder.mkdir()
    (job.folder / name).touch()


def without_result(jobs):
    return [job for job in jobs if not (job.folder / "result.json").exists()]


def test_of_nine_points_one_fails_one_is_killed_seven_have_results_and_the_others_run_again(tmp_path, capsys):
    jobs = make_jobs(tmp_path, 9)
    mark(jobs[4], "fail")
    mark(jobs[6], "kill")
    assert run_all(jobs, 2) == {jobs[4].folder: "exit code 1", jobs[6].folder: "killed by SIGKILL"}
    assert without_result(jobs) == [jobs[4], jobs[6]]
    assert last_line(jobs[4].folder) == f"{jobs[4].folder}/log.txt: error: it fails"
    told = capsys.readouterr().out.splitlines()
    assert sorted(line.split("  ")[0] for line in told) == [f"{i}/9" for i in range(1, 10)]
    assert {line.partition("  ")[2] for line in told} >= {"point3  finished", "point4  exit code 1"}

    (jobs[4].folder / "fail").unlink()
    assert list(run_all(without_result(jobs), 2)) == [jobs[6].folder]
    assert without_result(jobs) == [jobs[6]]


def sleeping(folder):
    return Job([sys.executable, "-S", "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(60)"], folder)


def wait_for_pid(folder):
    path = folder / "log.txt"
    while not (path.exists() and path.read_text().endswith("\n")):
        time.sleep(0.01)
    return int(path.read_text())


def test_as_many_points_run_at_a_time_as_there_are_workers_and_ctrl_c_stops_them(tmp_path, monkeypatch):
    jobs = [sleeping(tmp_path / str(i)) for i in range(3)]
    running = []

    def interrupt(_):
        running.extend(wait_for_pid(job.folder) for job in jobs[:2])
        raise KeyboardInterrupt

    monkeypatch.setattr(workers, "time", SimpleNamespace(sleep=interrupt, monotonic=time.monotonic))
    with pytest.raises(KeyboardInterrupt):
        run_all(jobs, 2)
    assert not jobs[2].folder.exists()
    for pid in running:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


# A sweep of one point, which takes the signal as a training run does.
SWEEP = """
import fxf.machine.listen
import sys
from pathlib import Path
from fxf.__main__ import act
from fxf.sweeps.workers import Job, run_all
point = "import signal, sys; print('ready', flush=True); signal.sigwait({signal.SIGTERM}); print('saved'); sys.exit(75)"
NEEDS_JAX, flags = False, lambda parser: None
main = lambda _: run_all([Job([sys.executable, "-S", "-c", point], Path(sys.argv[1]))], 1)
act("sweep", "__main__", [])
"""


@pytest.mark.parametrize(
    ("numbers", "code"),
    [([signal.SIGINT, signal.SIGTERM], 130)],
)
def test_a_sweep_passes_a_signal_on_and_ends_in_one_line_when_its_points_have(tmp_path, numbers, code):
    """With two signals at once, it passes one on."""
    command = [*HEARING, sys.executable, "-c", SWEEP, str(tmp_path)]
    sweep = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    log = tmp_path / "log.txt"
    while not (log.exists() and log.read_text() == "ready\n"):
        assert sweep.poll() is None, sweep.stderr.read()
        time.sleep(0.01)
    for number in numbers:
        sweep.send_signal(number)
    assert sweep.communicate(timeout=60)[1].count("\n") == 1
    limit = time.monotonic() + 60
    while len(log.read_text()) < len("ready\nsaved\n") and time.monotonic() < limit:
        time.sleep(0.01)
    assert (sweep.returncode, log.read_text()) == (code, "ready\nsaved\n")
