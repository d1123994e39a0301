"""A smoke run passes every stage of a config in seconds, without touching other runs."""

import json
import subprocess
import sys

import pytest

from fxf.base.config import with_values
from fxf.base.errors import UserError
from fxf.runs import configs, smoke
from fxf.runs.experiment import build
from small_runs import ROOT, command, overrides, records, tiny_config


def test_keys_in_steps_are_scaled_and_loaded_weights_keep_all_their_blocks():
    config = tiny_config(train={"steps": 1000}, task={"longer": 12, "longer_every": 12}, model={"n_layers": 4})
    config["optimizer"] |= {"schedule": "wsd", "warmup_steps": 400, "decay_steps": 600}
    changes = smoke.smoke_changes(config)
    assert (changes["optimizer.warmup_steps"], changes["optimizer.decay_steps"], changes["model.n_layers"]) == (2, 3, 2)
    assert (changes["train.steps"], changes["checkpoint.every"], changes["train.evaluate_every"]) == (6, 3, 6)
    build(with_values(config, changes | {"model.max_len": 16}))
    kept = {"start.path": "x", "data.validation": 0.2, "train.batch_size": 12, "train.microbatches": 4}
    found = smoke.smoke_changes(with_values(config, kept | {"model.max_len": 1024}))
    assert not {"model.n_layers", "train.batch_size"} & {*found}
    for more in ({"model.blocks": "2*(moe); delta"}, {"model.window": 5, "model.global_every": 3}):
        assert smoke.smoke_changes(with_values(config, more))["model.n_layers"] == 3


def test_a_smoke_run_passes_every_stage_and_leaves_the_run_beside_it_alone(tmp_path):
    run, folder = tmp_path / "run", tmp_path / "run-smoke"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"config": {}}))
    with pytest.raises(UserError, match="run-smoke: holds no smoke run; move it away"):
        smoke.new_folder(run)
    (folder / "config.json").write_text(json.dumps({"smoke": True}))
    (folder / "result.json").write_text("{}")
    done = command("train", *overrides(train={"steps": 5000}), "--smoke", f"--workdir={run}")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("smoke run with train.steps 6  checkpoint.every 3  train.evaluate_every 6")
    assert "  steps 6  " in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["run-smoke"]
    record = json.loads((folder / "config.json").read_text())
    assert record["smoke"] is True and record["overrides"]["train.steps"] == 6
    assert [(each["step"], "loss" in each) for each in records(folder)] == [(3, True), (6, True), (6, False)]
    assert {path.name for path in (folder / "checkpoints").iterdir()} == {"3", "6"}
    assert json.loads((folder / "result.json").read_text())["steps"] == 6
    assert (folder / "samples.jsonl").exists()


@pytest.mark.thorough
def test_every_shipped_config_passes_a_smoke_run():
    command = [sys.executable, "-m", "experiments.benchmarks.smoke"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert len(done.stdout.splitlines()) > len(configs.names())
