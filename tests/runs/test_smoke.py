"""A smoke run passes every stage of a config in seconds, and touches no other run."""

import json
import subprocess
import sys

import pytest

from fxf.base.config import with_values
from fxf.base.errors import UserError
from fxf.data import phrasebook
from fxf.runs import configs, smoke
from fxf.runs.configs import read_config
from fxf.runs.experiment import build
from helpers import first_phrases
from small_runs import ROOT, command, overrides, records, tiny_config


def test_what_counts_steps_is_scaled_with_them():
    config = tiny_config(train={"steps": 1000}, checkpoint={"every": 100})
    config["optimizer"] |= {"schedule": "wsd", "warmup_steps": 400, "decay_steps": 600}
    changes = smoke.smoke_changes(config)
    assert (changes["optimizer.warmup_steps"], changes["optimizer.decay_steps"]) == (2, 3)
    assert (changes["train.steps"], changes["checkpoint.every"], changes["train.evaluate_every"]) == (6, 3, 6)
    build(with_values(config, changes))


@pytest.mark.parametrize("name", ["characters:gpt2", "boolean_map", "studies/problems_tape", "studies/positions"])
def test_a_large_config_becomes_one_that_fits_its_parts(name, monkeypatch):
    monkeypatch.setattr(phrasebook, "phrases", first_phrases)
    config = read_config(name).to_dict()
    small = with_values(config, smoke.smoke_changes(config))
    built = build(small)
    assert built.train.batch_size * built.max_len <= smoke.TOKENS or built.train.batch_size % 2
    assert small["model"]["n_layers" if "n_layers" in small["model"] else "copies"] <= 10
    assert small["task"].get("length", 0) <= smoke.MOST["task.length"]


def test_weights_from_elsewhere_keep_all_their_blocks():
    config = tiny_config(model={"n_layers": 3}, start={"path": "runs/x"})
    assert "model.n_layers" not in smoke.smoke_changes(config)
    config["start"]["path"] = ""
    assert smoke.smoke_changes(config)["model.n_layers"] == 1
    config["model"] |= {"window": 5, "global_every": 2}
    assert smoke.smoke_changes(config)["model.n_layers"] == 2


def test_a_smoke_run_has_its_own_folder_and_replaces_only_a_smoke_run(tmp_path):
    folder = smoke.new_folder(tmp_path / "run")
    assert folder == tmp_path / "run-smoke" and not folder.exists()
    folder.mkdir()
    for record in (None, {"config": {}}):
        if record:
            (folder / "config.json").write_text(json.dumps(record))
        with pytest.raises(UserError, match="run-smoke: holds no smoke run; move it away"):
            smoke.new_folder(tmp_path / "run")
    (folder / "config.json").write_text(json.dumps({"smoke": True}))
    assert not smoke.new_folder(tmp_path / "run").exists()


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Returns the folder beside which a smoke run stands, and the finished command."""
    folder = tmp_path_factory.mktemp("smoke") / "run"
    flags = overrides(train={"steps": 5000})
    return folder, command("train", *flags, "--smoke", f"--workdir={folder}")


def test_a_smoke_run_validates_saves_tests_and_shows_samples(done):
    workdir = done[0].with_name("run-smoke")
    assert [(each["step"], "loss" in each) for each in records(workdir)] == [(3, True), (6, True), (6, False)]
    assert {path.name for path in (workdir / "checkpoints").iterdir()} == {"3", "6"}
    assert json.loads((workdir / "result.json").read_text())["steps"] == 6
    assert (workdir / "samples.jsonl").exists()


def test_the_command_says_in_a_line_what_a_smoke_run_changes_and_leaves_the_run_alone(done):
    folder, finished = done
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr.startswith("smoke run with train.steps 6  checkpoint.every 3  train.evaluate_every 6")
    assert "  steps 6  " in finished.stdout
    assert [path.name for path in folder.parent.iterdir()] == ["run-smoke"]
    record = json.loads((folder.parent / "run-smoke/config.json").read_text())
    assert record["smoke"] is True and record["overrides"]["train.steps"] == 6


@pytest.mark.thorough
def test_every_shipped_config_passes_a_smoke_run():
    command = [sys.executable, "-m", "experiments.benchmarks.smoke"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert len(done.stdout.splitlines()) > len(configs.names())
