"""Tasks that are written outside the package: they train, score, generate and can be looked into."""

import time
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
import sorting

from fxf.errors import UserError
from fxf.reports import probe
from fxf.runs import run
from fxf.runs.experiment import default_config
from fxf.tasks import TASKS
from fxf.tasks.task import Task, language_model_batch
from fxf.training.metrics import Clock


class Repeating(Task):
    """One digit again and again: the least that a task needs."""

    vocab_size, metrics = 10, ("-loss",)

    def __init__(self, config, run):
        self.longest, self.batch_size = config.length, run.train.batch_size

    def batch(self, key, step):
        digits_BT = jnp.repeat(jax.random.randint(key, (self.batch_size, 1), 0, 10), self.longest, axis=1)
        return language_model_batch(digits_BT, jnp.ones(digits_BT.shape))

    def validate(self, evaluator):
        loss_sum, weight_sum = evaluator.loss(self.batch(jax.random.key(0), 0))
        return {"loss": loss_sum / weight_sum}


def trained(task, workdir, monkeypatch, best):
    """Trains a small run of a task for a few steps; returns its result."""
    made = {"sorting": sorting.SORTING, "repeating": sorting.SORTING._replace(make=Repeating)}
    monkeypatch.setitem(TASKS, task, made[task])
    config = default_config(task).to_dict()
    config["task"]["name"] = task
    config["model"] |= {"n_layers": 1, "d_model": 6, "d_ff": 7, "n_heads": 2, "max_len": 11}
    config["train"] |= {"steps": 5, "batch_size": 7, "evaluate_every": 2}
    config["checkpoint"] |= {"best": best}
    config["log"] |= {"every": 5, "tensorboard": False}
    return run.train(config, workdir, Clock(time.perf_counter()), {"config_file": "test", "overrides": {}})


def test_a_task_with_generation_and_probing_takes_at_most_60_lines():
    assert len(Path(sorting.__file__).read_text().splitlines()) <= 60


def test_a_task_from_outside_trains_scores_generates_and_can_be_looked_into(tmp_path, monkeypatch):
    result = trained("sorting", tmp_path, monkeypatch, "exact_match")
    assert result["steps"] == 5 and 0 <= result["exact_match"] <= 1
    assert run.evaluate(tmp_path, Clock(0.0))["exact_match"] == result["exact_match"]
    answers = run.generate(tmp_path, ["3 1 2", "9"], {"beam_width": 2}, max_tokens=4)
    assert len(answers) == 2 and all(len(text.split()) <= 4 for text, _ in answers[0])
    with pytest.raises(UserError, match=r"^prompt 2: expected digits 1 … 9 with spaces between, got 'x'$"):
        run.generate(tmp_path, ["3 1 2", "x"], {})
    experiment, _, params = run.load(tmp_path)
    batch = probe.what_is_read(experiment, params, "3 1", "1 3")
    assert probe.token_labels(experiment, batch, "inputs") == ["0", "3", "1", "0", "1", "3"]


def test_a_task_that_only_trains_and_scores_needs_no_more(tmp_path, monkeypatch):
    result = trained("repeating", tmp_path, monkeypatch, "-loss")
    assert result["loss"] > 0
    for decode, message in ({}, "task 'repeating' answers no prompts"), ({"beam_width": 2}, "generates no tokens"):
        with pytest.raises(UserError, match=message):
            run.generate(tmp_path, ["1"], decode)
    experiment, _, params = run.load(tmp_path)
    with pytest.raises(UserError, match="task 'repeating' answers no prompts: it has no to_batch"):
        probe.what_is_read(experiment, params, "1")
