"""Configs are built, and misfits refused before training; the list of all keys."""

import numpy as np
import pytest

from closeness import assert_close
from configs.primer.bilayer import squared_error
from fxf.base.config import flatten
from fxf.base.errors import UserError
from fxf.layers.loss import Loss
from fxf.models import MODELS
from fxf.runs.compatibility import require_batch
from fxf.runs.evaluator import Evaluators
from fxf.runs.experiment import build, default_config
from fxf.runs.keys import of_config, sections
from fxf.tasks import TASKS
from helpers import first_batch, one_device, random_params, small_model
from small_runs import ROOT, command, tiny_config


@pytest.mark.parametrize("absent", ["prefill", "step"])
def test_a_model_that_cannot_generate_is_refused_by_a_task_that_does(absent, monkeypatch):
    shipped = MODELS["transformer_lm"]
    without = shipped._replace(make=lambda *arguments: shipped.make(*arguments)._replace(**{absent: None}))
    monkeypatch.setitem(MODELS, "transformer_lm", without)
    with pytest.raises(UserError, match=r"model.name: task 'reversal' generates .* has no prefill and step"):
        build(tiny_config())


def test_a_run_of_many_devices_is_read_on_one_if_there_are_no_more():
    assert build(tiny_config(parallel={"slices": 2, "tensor": 2})).layout_of_one_copy().mesh.size == 1


def of_logits(logits_BTV, batch):
    """Returns the cross-entropy, in float64."""
    log_of_all_BTV = logits_BTV - np.log(np.exp(logits_BTV.astype(np.float64)).sum(-1, keepdims=True))
    return -(batch["weights"] * np.take_along_axis(log_of_all_BTV, batch["targets"][..., None], -1)[..., 0]).sum()


def of_errors(outputs_BTV, batch):
    return (batch["weights"][..., None] * (outputs_BTV - np.eye(4)[batch["targets"]]) ** 2).sum()


@pytest.mark.parametrize(("loss", "expected"), [(Loss(None, True), of_logits), (Loss(squared_error, False), of_errors)])
def test_logits_are_scored_by_cross_entropy_and_other_outputs_by_their_loss(loss, expected):
    smoothing = 0.3 * loss.of_logits
    experiment = build(tiny_config(train={"label_smoothing": smoothing, "microbatches": 5}))
    experiment = experiment._replace(model=experiment.model._replace(loss=loss))
    batch = first_batch(experiment.task)
    evaluator = Evaluators(experiment, one_device())(random_params(experiment.model.spec))
    loss_sum, weight_sum = evaluator.loss(batch)
    assert_close(loss_sum, expected(evaluator.logits(batch), batch))
    assert weight_sum == batch["weights"].sum()
    assert evaluator.in_nats == loss.of_logits


def test_targets_outside_the_logits_and_inputs_outside_a_table_are_refused():
    weights = np.tile(np.arange(12) != 3, (5, 1))
    tokens = np.tile(np.arange(12) % 11, (5, 1))
    batch = {"inputs": tokens, "targets": np.where(weights, tokens, -100), "weights": weights}
    model, _ = small_model(11, max_len=12)
    classes = model._replace(readout=lambda params, x: model.readout(params, x)[..., :3])
    require_batch("batch", batch, model)
    require_batch("batch", {**batch, "targets": tokens % 3}, classes)
    with pytest.raises(UserError, match=r"^batch: targets: expected tokens 0 … 2, got -100"):
        require_batch("batch", {**batch, "weights": np.ones((5, 12))}, classes)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_the_keys_of_a_config_are_all_its_keys_with_its_values(task, optimizer):
    for model in (*TASKS[task].models, "guests.model:MEAN"):
        config = default_config(task, model, optimizer=optimizer).to_dict()
        found = {f"{path}.{key.name}": key.default for path, keys in of_config(config).items() for key in keys}
        values = {path: repr(value) if value == "" else str(value) for path, value in flatten(config)}
        assert found == {"seed.seed": values.pop("seed"), **values}


def test_the_page_of_all_keys_is_what_the_command_prints():
    assert all(key.meaning for keys in sections().values() for key in keys)
    page, printed = (ROOT / "docs/keys.md").read_text(), command("keys").stdout
    assert page.endswith(f"\n\n{printed}"), "put what fxf keys prints into docs/keys.md"
