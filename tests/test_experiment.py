"""Whole runs in one process: train, resume, evaluate, generate."""

import importlib
import json
import logging
import time

import jax
import numpy as np
import pytest

from fxf import experiment
from fxf.decoding.sampling import Sampling
from fxf.errors import UserError
from fxf.training import loop
from fxf.training.metrics import Clock
from runs import tiny_config

ORIGIN = {"config_file": "test", "overrides": {}}


def train(workdir, **sections):
    return experiment.train(tiny_config(**sections), workdir, Clock(time.perf_counter()), ORIGIN)


def records(workdir):
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


def without_times(rows):
    return [{k: v for k, v in row.items() if not k.endswith("per_second")} for row in rows]


def final_state(workdir):
    _, step, state = experiment.load(workdir)
    return step, jax.tree.map(np.asarray, state)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "finished"
    return workdir, train(workdir, train={"evaluate_every": 4}, log={"tensorboard": True})


def test_a_run_leaves_the_folder_that_it_promises(finished):
    workdir, result = finished
    assert {path.name for path in workdir.iterdir()} == {
        "config.json", "metrics.jsonl", "tensorboard", "checkpoints", "result.json"
    }  # fmt: skip
    assert json.loads((workdir / "result.json").read_text()) == result
    config = json.loads((workdir / "config.json").read_text())
    assert set(config) == {"config", "config_file", "overrides", "versions", "git_commit", "device"}
    assert config["config"] == tiny_config(train={"evaluate_every": 4}, log={"tensorboard": True})
    assert list((workdir / "tensorboard").iterdir())


def test_a_result_has_the_figures_that_every_result_has(finished):
    _, result = finished
    assert (result["task"], result["steps"], result["seed"]) == ("reversal", 6, 0)
    assert result["parameters"] == 4 * 6 + 11 * 6 + (2 * 6 + 4 * 36 + 6 + 2 * 6 + 2 * 42 + 7 + 6) + 2 * 6 + 6 * 4 + 4
    assert 0 <= result["exact_match"] <= 1
    assert result["examples"] == 3 + 9
    parts = result["train_seconds"] + result["compile_seconds"] + result["evaluate_seconds"]
    assert 0 < result["train_seconds"] < parts <= result["wall_seconds"] + 0.01
    assert result["tokens_per_second"] > 0
    assert result["train_loss"] == pytest.approx(np.log(4), abs=1.5)


def test_records_come_at_every_logged_and_evaluated_step(finished):
    workdir, result = finished
    rows = records(workdir)
    trained = [row for row in rows if "loss" in row]
    evaluated = [row for row in rows if "exact_match" in row]
    assert [row["step"] for row in trained] == [2, 3, 4, 6]
    assert [row["step"] for row in evaluated] == [4, 6]
    assert trained[-1]["loss"] == result["train_loss"]
    assert evaluated[-1]["exact_match"] == result["exact_match"]


def test_checkpoints_come_at_every_saved_step_and_the_last(finished):
    workdir, _ = finished
    assert sorted(int(path.name) for path in (workdir / "checkpoints").iterdir()) == [2, 4, 6]


def test_two_runs_give_the_same_bits(finished, tmp_path):
    workdir, _ = finished
    train(tmp_path / "again", train={"evaluate_every": 4}, log={"tensorboard": True})
    assert without_times(records(tmp_path / "again")) == without_times(records(workdir))
    jax.tree.map(np.testing.assert_array_equal, final_state(tmp_path / "again"), final_state(workdir))


def test_how_often_a_run_saves_and_evaluates_does_not_change_its_bits(finished, tmp_path):
    train(tmp_path, checkpoint={"every": 1}, train={"evaluate_every": 5})
    jax.tree.map(np.testing.assert_array_equal, final_state(tmp_path), final_state(finished[0]))


class StoppedError(Exception):
    pass


def train_and_stop_after(step, workdir, monkeypatch, **sections):
    """Stops the run as a crash would, after the call that reaches `step` and before anything is saved of it."""

    def stop(history, before):
        if before + len(history["loss_sum"]) >= step:
            raise StoppedError

    with monkeypatch.context() as patch:
        patch.setattr(loop, "_require_finite", stop)
        with pytest.raises(StoppedError):
            train(workdir, **sections)


@pytest.mark.parametrize("stop", [1, 3, 6])
def test_a_resumed_run_is_the_run_that_never_stopped(finished, tmp_path, monkeypatch, stop):
    workdir, sections = tmp_path / "stopped", {"train": {"evaluate_every": 4}, "log": {"tensorboard": True}}
    train_and_stop_after(stop, workdir, monkeypatch, **sections)
    result = train(workdir, **sections)
    jax.tree.map(np.testing.assert_array_equal, final_state(workdir), final_state(finished[0]))
    assert without_times(records(workdir)) == without_times(records(finished[0]))
    assert result["exact_match"] == finished[1]["exact_match"]


def test_a_run_stopped_after_its_last_save_only_writes_its_result(finished, tmp_path, capsys):
    workdir = tmp_path / "saved"
    train(workdir)
    (workdir / "result.json").unlink()
    before = records(workdir)
    result = train(workdir)
    assert result["exact_match"] == finished[1]["exact_match"]
    assert records(workdir) == before


def test_a_finished_run_says_so_and_repeats_its_result(finished, capsys):
    workdir, result = finished
    before = {path: path.stat().st_mtime_ns for path in workdir.rglob("*")}
    assert train(workdir, train={"evaluate_every": 4}, log={"tensorboard": True}) == result
    assert "finished already" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in workdir.rglob("*")} == before


def test_another_config_is_refused_and_its_keys_named(finished):
    with pytest.raises(UserError, match=r"another config; differing keys: seed \(0 there, 3 here\), model.n_layers"):
        train(finished[0], seed=3, model={"n_layers": 2}, train={"evaluate_every": 4}, log={"tensorboard": True})


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_good_checkpoint(tmp_path):
    diverging = {"optimizer": {"name": "sgd", "learning_rate": 1e30}}
    with pytest.raises(UserError, match=r"step \d: the loss is (nan|inf).*training stopped"):
        train(tmp_path, **diverging, checkpoint={"every": 1}, log={"every": 1})
    _, step, state = experiment.load(tmp_path)
    assert step == len([row for row in records(tmp_path) if "loss" in row])
    assert np.isfinite(jax.tree.leaves(state.params)[0]).all() or step == 1
    assert not (tmp_path / "result.json").exists()


def test_the_best_checkpoint_is_the_one_in_use(tmp_path, monkeypatch):
    scores = iter([0.25, 0.75, 0.5])
    monkeypatch.setattr(importlib.import_module("fxf.tasks.reversal"), "exact_match", lambda *_: next(scores))
    train(tmp_path, train={"evaluate_every": 2}, checkpoint={"every": 0, "keep": 1, "best": "exact_match"})
    assert experiment.load(tmp_path)[1] == 4
    assert experiment.load(tmp_path, step=6)[1] == 6


def test_evaluate_repeats_the_figures_of_the_run(finished):
    workdir, result = finished
    scored = experiment.evaluate(workdir, Clock(time.perf_counter()))
    assert scored == {"step": 6, "exact_match": result["exact_match"], "examples": 12}


def test_generate_continues_each_prompt_in_order_whatever_its_company(finished):
    workdir, _ = finished
    prompts = ["3 1", "2", "1 1 2 3"]
    together = experiment.generate(workdir, prompts, Sampling())
    assert together == [experiment.generate(workdir, [prompt], Sampling(), max_tokens=6)[0] for prompt in prompts]
    assert all(set(line.split()) <= {"1", "2", "3"} for line in together)
    assert all(len(line.split()) <= 2 for line in experiment.generate(workdir, prompts, Sampling(), max_tokens=2))


def test_sampling_reaches_the_model(finished):
    workdir, _ = finished
    hot = Sampling(temperature=50.0)
    first, again, other = (experiment.generate(workdir, ["3 1"] * 9, hot, seed=seed) for seed in (0, 0, 1))
    assert first == again != other
    assert len(set(first)) > 1


def test_a_damaged_newest_checkpoint_costs_its_steps_and_nothing_else(finished, tmp_path, monkeypatch, caplog):
    sections = {"train": {"evaluate_every": 4}, "log": {"tensorboard": True}}
    train_and_stop_after(6, tmp_path, monkeypatch, **sections)
    for path in (tmp_path / "checkpoints" / "4").rglob("*"):
        if path.is_file() and path.parent.name == "d":
            path.write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        train(tmp_path, **sections)
    assert "passing over the damaged checkpoint of step 4" in caplog.text
    jax.tree.map(np.testing.assert_array_equal, final_state(tmp_path), final_state(finished[0]))
