"""Runs that share a process: each equals the run alone, only the first compiles, and a failure ends only itself."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest
from test_points import write

from fxf.base import signals
from fxf.base.errors import Interrupted, UserError
from fxf.reports import run_files
from fxf.runs import inside, run
from fxf.runs.configs import read_config
from fxf.runs.experiment import build
from fxf.sweeps import crew
from fxf.sweeps.crew import Crew, Job, last_line
from fxf.sweeps.points import make_points
from helpers import refused, table
from small_runs import HEARING, ROOT, overrides, tiny_config, trained, with_sections, without_times

SECTIONS, *CHANGES = (keys for keys, _ in table("points of a crew"))
CONFIG = tiny_config(**SECTIONS)
POINTS = make_points(CONFIG, CHANGES)
ORIGIN = {"config_file": "configs/reversal.py", "overrides": {}}


def jobs_of(points, workdir):
    return [Job(point.config, workdir / point.name, ORIGIN) for point in points]


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """Returns the sweep's folder, the errors of failed points, and each point's number of compilations."""
    workdir, events = tmp_path_factory.mktemp("sweep"), []

    def listen(event, _, **__):
        events.extend([event] if "jaxpr_to_mlir" in event or "backend_compile" in event else [])

    jax.monitoring.register_event_duration_secs_listener(listen)
    why, compiled = [], [0]
    for _, error in Crew(1).train(jobs_of(POINTS, workdir)):
        why.append(error)
        compiled.append(len(events))
    return workdir, why, np.diff(compiled)


def test_only_the_first_point_compiles_and_one_that_diverges_ends_alone(together):
    workdir, why, (first, *others) = together
    assert first > 2 and others == [0, 0] and why == ["", "", ""]
    assert run_files.read(workdir / POINTS[1].name).state == run_files.DIVERGED


def test_a_point_has_the_bits_and_the_page_of_the_same_run_alone(together, tmp_path):
    folder = together[0] / POINTS[2].name
    trained(POINTS[2].config, tmp_path / "alone", ORIGIN)
    inside.complete(POINTS[2].config, tmp_path / "alone")
    alone, shared = run.load(tmp_path / "alone")[2], run.load(folder)[2]
    jax.tree.map(np.testing.assert_array_equal, alone, shared)
    for name in ("config.json", "metrics.jsonl", "result.json"):
        assert rows_of(tmp_path / "alone" / name) == rows_of(folder / name)
    alone, shared = (json.loads((path / "inside.json").read_text()) for path in (tmp_path / "alone", folder))
    assert shared["examples"] == alone["examples"] and len(shared["examples"]) == 2
    assert shared["result"] == json.loads((folder / "result.json").read_text())


def rows_of(path):
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    return without_times(map(json.loads, lines))


@pytest.mark.parametrize(("change", "program"), refused("program of a run"))
def test_only_numbers_that_are_inputs_of_a_program_leave_it_the_same(change, program):
    before, after = make_points(CONFIG, [{}, change])
    assert (build(before.config).program_key() == build(after.config).program_key()) == (program == "same")


def test_runs_of_a_task_that_draws_its_data_by_the_seed_share_a_program_and_learn_their_own_data(tmp_path, monkeypatch):
    keys = {"model": {"n_layers": 1}, "optimizer": {"warmup_steps": 0}, "train": {"steps": 2}, "log": {"report": False}}
    config, kept = with_sections(read_config("boolean_map").to_dict(), keys), {}
    seeds = [(0, kept), (1, kept), (1, {})]
    runs = [run.train({**config, "seed": s}, tmp_path / str(i), ORIGIN, kept=k) for i, (s, k) in enumerate(seeds)]
    assert len(kept) == 1 and runs[0]["train_loss"] != runs[1]["train_loss"] == runs[2]["train_loss"]
    task = type(build(config).task)  # the data may also be constants of a program inside
    monkeypatch.setattr(task, "batch", lambda *args, batch=task.batch: jax.jit(batch, static_argnums=0)(*args))
    assert len({build({**config, "seed": seed}).program_key() for seed in (0, 1)}) == 2


def test_a_signal_stops_the_process_and_not_only_the_point_and_its_line_is_printed(tmp_path, monkeypatch, capfd):
    started = []

    def stopped(_, folder, *__, **___):
        started.append(folder.name)
        signals.print_last_line("stopped at once")
        raise Interrupted("stopped at step 2, which is saved")

    monkeypatch.setattr(signals, "_printed", False)
    monkeypatch.setattr(run, "train", stopped)
    with pytest.raises(Interrupted):
        list(Crew(1).train(jobs_of(POINTS, tmp_path)))
    assert (started, capfd.readouterr().err) == ([POINTS[0].name], "stopped at once\n")


def test_a_file_that_changes_between_runs_ends_the_crew(tmp_path, monkeypatch):
    records = iter([{"mine": {"path": "mine.py", "sha256": digest}} for digest in "12"])
    monkeypatch.setattr(crew.guests, "record", lambda _: next(records))
    monkeypatch.setattr(crew, "train", lambda *_: "")
    with pytest.raises(UserError, match="changed since the first run began"):
        list(Crew(1).train(jobs_of(POINTS, tmp_path)))


def test_of_several_processes_one_also_trains_a_single_run_and_is_replaced_if_it_ends_between_runs(monkeypatch):
    words, pipe = ["sh", "-c", "read run; echo '\"there\"'"], subprocess.PIPE
    monkeypatch.setattr(crew, "_worker", lambda _: subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True))
    with Crew(2) as both:
        jobs = jobs_of(POINTS[:1], ROOT)
        ended = [(where, both._workers[0].wait()) for _ in range(2) for _, where in both.train(jobs)]
    assert ended == 2 * [("there", 0)]


def test_the_environment_may_set_the_number_of_threads_of_each_process(monkeypatch):
    monkeypatch.setenv("PJRT_NPROC", "3")
    monkeypatch.setattr(subprocess, "Popen", lambda *_, env, **__: env["PJRT_NPROC"])
    assert crew._worker(2) == "3"


def test_runs_of_two_threads_take_turns_and_an_error_of_several_lines_is_reported_in_one(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(run, "train", lambda *_, **__: [time.sleep(0.1), exec(r"raise TypeError('at\n(3,)\n\nx')")])
    with ThreadPoolExecutor(2) as pool:
        errors = list(pool.map(lambda job: crew.train(job, {}, {}), jobs_of(POINTS[:2], tmp_path)))
    os.write(1, b"afterwards")
    assert (capfd.readouterr().out, errors) == ("afterwards", 2 * ["TypeError: at (3,) x"])


def step_of(folder):
    records = run_files.read(folder).metrics if run_files.is_run(folder) else []
    return records[-1]["step"] if records else 0


def wait_for(condition):
    limit = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.02)


@pytest.mark.thorough
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_process_that_is_killed_fails_its_run_alone_and_a_signal_saves_the_others(how, tmp_path):
    """Both runs are long: the first to start is killed, another process replaces it, and the signal ends all."""
    write(tmp_path / "seeds.py", "def sweep(add):\n    add(seed=1)\n    add(seed=2)")
    flags = [f"--config={tmp_path}/seeds.py", *overrides(train={"steps": 10**6})[2:], f"--workdir={tmp_path}/sweep"]
    command = [*HEARING, sys.executable, "-m", "fxf", "sweep", *flags, "--workers=2"]
    sweep = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    first, second = (tmp_path / "sweep" / f"seed={seed}" for seed in (1, 2))
    wait_for(lambda: (step_of(first) and step_of(second)) or sweep.poll() is not None)
    os.kill(int(re.search(r"pid (\d+)", (first / "lock").read_text())[1]), signal.SIGKILL)
    assert sweep.stdout.readline() == "2 points, 0 finished already\n"
    said = f"{first}/log.txt: error: its process ended with code -9"
    assert sweep.stdout.readline() == f"1/2  seed=1  {said}\n"
    assert last_line(first) == said
    sweep.send_signal(how)
    out, said = sweep.communicate(timeout=60)
    assert (sweep.returncode, out, said.count("\n")) == ((75, "", 1) if how == signal.SIGTERM else (-how, "", 0)), said
    wait_for(lambda: list((second / "checkpoints").glob("[0-9]*")))  # at once, except what was killed
