"""A task that is written outside the package and has no more than training needs; tests/guests/ has a whole one."""

import jax
import jax.numpy as jnp
import pytest

from fxf.base.errors import UserError
from fxf.runs import probe, run
from fxf.runs.experiment import default_config
from fxf.tasks import TASKS, RegisteredTask
from fxf.tasks.reversal import ReversalConfig
from fxf.tasks.task import Task, language_model_batch
from small_runs import trained


class Repeating(Task):
    """One digit again and again: the least that a task needs."""

    vocab_size, metrics, longest = 10, ("-loss",), 8

    def __init__(self, config, run):
        self.batch_size = run.train.batch_size

    def batch(self, key, step):
        digits_BT = jnp.repeat(jax.random.randint(key, (self.batch_size, 1), 0, 10), self.longest, axis=1)
        return language_model_batch(digits_BT, jnp.ones(digits_BT.shape))

    def validate(self, evaluator):
        loss_sum, weight_sum = evaluator.loss(self.batch(jax.random.key(0), 0))
        return {"loss": loss_sum / weight_sum}


@pytest.mark.thorough
def test_a_task_that_only_trains_and_scores_needs_no_more(tmp_path, monkeypatch):
    monkeypatch.setitem(TASKS, "repeating", RegisteredTask({"task": ReversalConfig}, Repeating, ("transformer_lm",)))
    config = default_config("repeating", optimizer="sgd").to_dict()
    config["model"] |= {"n_layers": 1, "d_model": 6, "d_ff": 7, "n_heads": 2, "max_len": 11}
    config["train"] |= {"steps": 5, "batch_size": 7, "evaluate_every": 2}
    config["checkpoint"] |= {"best": "-loss"}
    config["log"] |= {"every": 5, "tensorboard": False, "report": False}
    assert trained(config, tmp_path)["loss"] > 0
    for decode, message in ({}, "task 'repeating' answers no prompts"), ({"beam_width": 2}, "generates no tokens"):
        with pytest.raises(UserError, match=message):
            run.generator(tmp_path, decode)(["1"])
    experiment, _, params = run.load(tmp_path)
    with pytest.raises(UserError, match="task 'repeating' answers no prompts: it has no to_batch"):
        probe.what_is_read(experiment, params, "1")
