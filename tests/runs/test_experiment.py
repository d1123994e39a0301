"""Sections that do not fit each other are refused before anything is trained."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from closeness import assert_close
from fxf.errors import UserError
from fxf.layers.loss import CROSS_ENTROPY, SQUARED_ERROR, Loss
from fxf.models import MODELS
from fxf.runs.experiment import build, default_config
from fxf.tasks import TASKS, reversal
from fxf.training.log import Clock
from fxf.training.optimizer import OPTIMIZERS, RegisteredOptimizer, plain
from helpers import one_device, random_params
from small_runs import tiny_config


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{i} and {i * i}\n" for i in range(60)))
    return str(path)


def config_of(task, kind, text, /, **sections):
    config = default_config(task, kind).to_dict()
    if "data" in config:
        config["data"]["path"] = text
    for name, values in sections.items():
        config[name] |= values
    return config


@pytest.mark.parametrize("absent", ["prefill", "step"])
def test_a_model_that_cannot_generate_is_refused_by_a_task_that_does(absent, monkeypatch):
    shipped = MODELS["transformer_lm"]
    without = shipped._replace(make=lambda *arguments: shipped.make(*arguments)._replace(**{absent: None}))
    monkeypatch.setitem(MODELS, "transformer_lm", without)
    with pytest.raises(
        UserError, match=r"model.name: task 'reversal' generates .* 'transformer_lm' has no prefill and step"
    ):
        build(tiny_config())


@pytest.mark.parametrize(("key", "value", "default"), [("temperature", 0.8, 0.0), ("beam_width", 2, 1)])
def test_outputs_that_are_no_logits_are_neither_drawn_from_nor_searched(key, value, default, text):
    config = config_of("language_model", "bilayer", text, task={"length": 5}, decode={key: value})
    with pytest.raises(
        UserError, match=rf"decode.{key}: the outputs of model 'bilayer' are not logits; leave it at {default}"
    ):
        build(config)


def test_copies_of_a_model_generate_nothing(text):
    sections = {"model": {"copies": 2}, "train": {"batch_size": 4}, "task": {"length": 5}}
    config = config_of("language_model", "bilayer", text, **sections)
    with pytest.raises(
        UserError,
        match=r"'language_model' generates tokens; model 'bilayer' with model.copies 2 has no prefill and step",
    ):
        build(config)


@pytest.mark.parametrize(("task", "model"), [("masking", "masked_lm"), ("boolean_map", "bilayer")])
def test_keys_of_decoding_are_refused_where_nothing_is_generated(task, model, text):
    build(config_of(task, model, text))
    with pytest.raises(UserError, match=rf"decode.beam_width: task '{task}' generates no tokens; leave it at 1"):
        build(config_of(task, model, text, decode={"beam_width": 3}))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"positions": "none"}, "model.positions 'none' reads no positions without a model.window"),
        ({"positions": "learned", "position_range": 20}, "model.position_range draws other positions"),
    ],
)
def test_mirrored_positions_that_nothing_reads_are_refused(model, message):
    with pytest.raises(UserError, match=f"task.mirrored: {message}"):
        build(tiny_config(task={"mirrored": True}, model=model))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"positions": "rotary", "max_len": 299}, "model.max_len: 299 is too short; the task's sequences need 300"),
    ],
)
def test_drawn_positions_that_nothing_reads_are_refused_and_need_room_for_their_range(model, message):
    task = {"position_range": 300}
    build(config_of("length", "transformer_lm", "", task=task, model={"positions": "rotary", "max_len": 300}))
    with pytest.raises(UserError, match=message):
        build(config_of("length", "transformer_lm", "", task=task, model=model))


def test_mirrored_positions_are_read_by_an_encoding_or_a_window():
    for model in ({"positions": "learned"}, {"positions": "none", "window": 2}):
        build(tiny_config(task={"mirrored": True}, model=model))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"positions": "none", "attention": "linear"}, "model.attention 'linear' remembers all earlier tokens"),
    ],
)
def test_documents_that_the_model_cannot_keep_apart_are_refused_before_they_are_prepared(model, message, text):
    data = {"path": text, "format": "files"}
    with pytest.raises(UserError, match=f"^task.document_mask: {message}"):
        build(config_of("language_model", "transformer_lm", "", data=data, model=model))


class Doubled(reversal.Reversal):
    """Reversal, and something of its own."""


@pytest.mark.parametrize(
    ("section", "registry", "entry"),
    [
        ("task", TASKS, TASKS["reversal"]._replace(make=Doubled)),
        ("model", MODELS, MODELS["transformer_lm"]._replace(in_place_of="transformer_lm")),
        ("optimizer", OPTIMIZERS, RegisteredOptimizer(plain(optax.sgd))),
    ],
)
def test_what_is_registered_under_another_name_than_its_sections_default_is_built(
    section, registry, entry, monkeypatch
):
    monkeypatch.setitem(registry, "doubled", entry)
    names = {"task": "reversal", "model": "transformer_lm", "optimizer": "adam", section: "doubled"}
    config = default_config(**names).to_dict()
    experiment = build(config)
    assert config[section]["name"] == experiment.config[section]["name"] == "doubled"
    assert isinstance(experiment.task, Doubled) == (section == "task")
    moments = jax.eval_shape(experiment.optimizer.init, random_params(experiment.model.spec))
    assert (len(jax.tree.leaves(moments)) > 9) == (section != "optimizer")  # sgd has no moments


def tripled(*arguments, **options):
    loss_sum, weight_sum = CROSS_ENTROPY.sums(*arguments, **options)
    return 3 * loss_sum, weight_sum


def focal(readout, features_BTD, targets_BT, weights_BT, label_smoothing, **options):
    of_targets_BT = jnp.take_along_axis(jax.nn.log_softmax(readout(features_BTD)), targets_BT[..., None], -1)[..., 0]
    return -(weights_BT * (1 - jnp.exp(of_targets_BT)) ** 2 * of_targets_BT).sum(), weights_BT.sum()


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("sums", [CROSS_ENTROPY.sums, tripled, focal])
def test_whatever_loss_trains_logits_the_scored_one_is_their_cross_entropy(sums, smoothing):
    experiment = build(tiny_config(train={"label_smoothing": smoothing, "microbatches": 5}))
    experiment = experiment._replace(model=experiment.model._replace(loss=Loss(sums, of_logits=True)))
    batch = jax.device_get(jax.jit(experiment.task.batch)(jax.random.key(0), 0))
    evaluator = experiment.evaluator(Clock(0.0), one_device())(random_params(experiment.model.spec))
    logits_BTV = evaluator.logits(batch).astype(np.float64)
    log_of_all_BTV = logits_BTV - np.log(np.exp(logits_BTV).sum(-1, keepdims=True))
    expected = -(batch["weights"] * np.take_along_axis(log_of_all_BTV, batch["targets"][..., None], -1)[..., 0]).sum()
    assert evaluator.in_nats
    assert_close(evaluator.loss(batch)[0], expected)
    assert evaluator.loss(batch)[1] == batch["weights"].sum()


def test_a_model_whose_outputs_are_no_logits_is_scored_by_its_own_loss():
    experiment = build(tiny_config())
    experiment = experiment._replace(model=experiment.model._replace(loss=SQUARED_ERROR))
    batch = jax.device_get(jax.jit(experiment.task.batch)(jax.random.key(0), 0))
    evaluator = experiment.evaluator(Clock(0.0), one_device())(random_params(experiment.model.spec))
    errors_BTV = evaluator.logits(batch) - np.eye(4, dtype=np.float32)[batch["targets"]]
    assert not evaluator.in_nats
    assert_close(evaluator.loss(batch)[0], (batch["weights"][..., None] * errors_BTV**2).sum())
