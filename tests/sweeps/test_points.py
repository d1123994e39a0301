"""Sweeps: the points of a config file, their names and checks, running a sweep, and the table of its runs."""

import csv
import json
import re

import pytest

from fxf.base.errors import UserError
from fxf.runs import run_folder
from fxf.runs.configs import read_sweep
from fxf.sweeps.points import check, grid, make_points, point_name, read_rows, write_table
from helpers import refused
from small_runs import command, overrides, script, tiny_config


def test_a_grid_holds_every_combination_and_the_last_key_changes_fastest():
    assert grid({"a": [1, 2], "b": range(3)}) == [{"a": a, "b": b} for a in (1, 2) for b in (0, 1, 2)]


@pytest.mark.parametrize(("points", "message"), refused("points of a sweep"))
def test_points_that_cannot_be_are_refused(points, message, tmp_path):
    with pytest.raises(UserError, match=message):
        check(make_points(tiny_config(), points["added"], overridden=["train.steps"]), tmp_path)


def test_names_are_file_names_and_differ_where_the_points_do():
    values = ["x/y", "x_y", "x y", "é", "è", "v" * 300, "v" * 301, "..", "", "\ud800"]
    names = [point_name({"data.path": value}) for value in values]
    assert len(set(names)) == len(values) and [point_name({}), point_name({"b": 1, "a": 2})] == ["unchanged", "a=2,b=1"]
    assert all(re.fullmatch("[a-zA-Z0-9_.=,+-]{1,119}", name) for name in names)


def test_every_point_is_built_and_its_folder_checked_before_anything_runs(tmp_path):
    points = make_points(tiny_config(), grid({"model.n_heads": [1, 2, 4]}))
    with pytest.raises(UserError, match=r"point 3 \(model.n_heads=4\): model.n_heads: 4 does not divide"):
        check(points, tmp_path)
    assert check(points[:2], tmp_path) == points[:2] and not list(tmp_path.iterdir())
    (folder := tmp_path / points[1].name).mkdir()
    identity = run_folder.open_for_training(run_folder.RunInputs(folder, points[1].config, {}, {}), {})
    (folder / "metrics.jsonl").write_text('{"step": 1}\n')
    assert check(points[:2], tmp_path) == points[:2]
    run_folder.write_result(folder, {}, identity)
    assert check(points[:2], tmp_path) == points[:1]
    longer = make_points(tiny_config(train={"steps": 99}), [{"model.n_heads": 2}])
    assert check(longer, tmp_path) == longer  # it resumes, as with fxf train
    with pytest.raises(UserError, match=r"a finished run with another decode\.beam_width"):
        check(make_points(tiny_config(decode={"beam_width": 2}), [{"model.n_heads": 2}]), tmp_path)
    changed = make_points(tiny_config(train={"batch_size": 7}), [{"model.n_heads": 2}])
    with pytest.raises(UserError, match=r"point 1 \(model.n_heads=2\): .* another run: train.batch_size \(5 there, 7"):
        check(changed, tmp_path)


def write(path, sweep):
    path.write_text(f"from fxf.runs.experiment import default_config\nfrom fxf.sweeps.points import grid\n\n\n"
                    f"def get_config(argument='a'):\n    return default_config('reversal')\n\n\n{sweep}\n")  # fmt: skip
    return path


def test_a_sweep_gets_the_argument_of_its_config_file_if_it_takes_one(tmp_path):
    named = write(tmp_path / "named.py", "def sweep(add, argument='a'):\n    add(**{'seed': ord(argument)})")
    assert read_sweep(f"{named}:b") == [{"seed": ord("b")}]
    assert read_sweep(str(named)) == [{"seed": ord("a")}]
    plain = write(tmp_path / "plain.py", "def sweep(add):\n    for point in grid({'seed': [1, 2]}): add(**point)")
    assert read_sweep(f"{plain}:b") == read_sweep(str(plain)) == [{"seed": 1}, {"seed": 2}]


@pytest.mark.thorough
def test_a_sweep_runs_its_points_names_the_failed_one_and_resumes(tmp_path, monkeypatch):
    rates = "def sweep(add):\n    for point in grid({'optimizer.learning_rate': [0.001, 1e30]}): add(**point)"
    tiny = overrides(optimizer={"name": "sgd"}, log={"every": 1})[1:]
    flags = [flag for flag in tiny if "learning_rate" not in flag]
    workdir = tmp_path / "sweep"
    sweep = ["sweep", f"--config={write(tmp_path / 'rates.py', rates)}", *flags, f"--workdir={workdir}"]

    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "programs"))
    finished = script(*sweep)
    assert finished.returncode == 1, finished.stderr
    lines = finished.stdout.splitlines()
    assert lines[:2] == ["2 points, 0 finished already", "1/2  optimizer.learning_rate=0.001  finished"]
    failure = finished.stderr.splitlines()[-1]
    assert failure.startswith(f"{workdir}/optimizer.learning_rate=1e+30: no result; ")
    assert "log.txt: error: step " in failure
    assert lines[2].startswith("2/2  optimizer.learning_rate=1e+30  ") and lines[2].endswith(failure[-40:])
    with (workdir / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["optimizer.learning_rate"] for row in rows] == ["0.001", "1e+30"]
    assert [(row["status"], row["examples"]) for row in rows] == [("finished", "12"), ("diverged", "")]

    assert command(*sweep, "--workers=0").stdout.startswith("2 points, 1 finished already\n")
    (left,) = command(*sweep, "--dry_run").stdout.splitlines()
    assert " -P -m fxf train --config=" in left
    assert left.endswith(f"--config.optimizer.learning_rate=1e+30 --workdir={workdir}/optimizer.learning_rate=1e+30")
    with run_folder.locked(workdir / "optimizer.learning_rate=0.001"):  # it fails, beside its result of fewer steps
        assert command(*sweep, "--config.train.steps=99").stderr.count(": no result; ") == 2


KEY = "model.layers.feed_forward.d_ff"  # of a single layer: only a config that sets it has it
RESULT = {"identity": "12ab", "task": "reversal", "seed": 1, "exact_match": 0.123456, "note": "a|b", "train_loss": 2.0}


@pytest.fixture
def points(tmp_path):
    """Three points; the last has no result."""
    idea = {"model": {"block": "idea", "layers": {"feed_forward": {"d_ff": 3}}}, "seed": 1}
    added = [{"model.n_layers": 2, "seed": 1}, idea, {"seed": 7}]
    points = make_points(tiny_config(), added)
    for point, extra in zip(points, ({}, {"best_step": 4}), strict=False):
        (tmp_path / point.name).mkdir()
        (tmp_path / point.name / "config.json").write_text(json.dumps({"config": point.config}))
        (tmp_path / point.name / "result.json").write_text(json.dumps(RESULT | extra))
    return points


def test_a_row_has_every_changed_key_and_the_metrics_of_its_run_and_the_csv_all_rows(points, tmp_path):
    first, second, third = rows = read_rows(points, tmp_path)
    assert first == {"point": "model.n_layers=2,seed=1", "model.n_layers": 2, "model.block": "pre_norm", KEY: "",
                     "status": "finished", **RESULT}  # fmt: skip
    assert (second["model.n_layers"], second["model.block"], second[KEY], second["best_step"]) == (1, "idea", 3, 4)
    assert third == {"point": "seed=7", "model.n_layers": 1, "model.block": "pre_norm", KEY: "", "seed": 7,
                     "status": "no result"}  # fmt: skip
    read = list(csv.DictReader(write_table(points, tmp_path).read_text().splitlines()))
    columns = f"point model.n_layers seed model.block {KEY} status identity task exact_match note train_loss best_step"
    assert list(read[0]) == columns.split()
    assert read == [{name: str(row.get(name, "")) for name in read[0]} for row in rows]


def test_a_result_overwrites_no_column_of_the_sweep(points, tmp_path):
    spoilt = {"point": "other", "status": "won", "model.n_layers": 9, "seed": 1, "exact_match": 0.5}
    (tmp_path / points[0].name / "result.json").write_text(json.dumps(RESULT | spoilt))
    row = read_rows(points, tmp_path)[0]
    assert (row["point"], row["status"], row["model.n_layers"], row["seed"]) == (points[0].name, "finished", 2, 1)
    assert (row["result.point"], row["result.status"], row["result.model.n_layers"]) == ("other", "won", 9)
