"""Sections that do not fit each other are refused before anything is trained."""

import pytest

from fxf.errors import UserError
from fxf.models import MODELS
from fxf.runs.experiment import build, default_config
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
        ({"positions": "walks", "d_model": 8}, "model.positions 'walks' makes them from the tokens"),
        ({"positions": "learned", "position_range": 20}, "model.position_range draws other positions"),
    ],
)
def test_mirrored_positions_that_nothing_reads_are_refused(model, message):
    with pytest.raises(UserError, match=f"task.mirrored: {message}"):
        build(tiny_config(task={"mirrored": True}, model=model))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"positions": "turns", "max_len": 300}, "task.position_range: model.positions 'turns' makes them"),
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
        ({"positions": "walks"}, "model.positions 'walks' walks along whole rows; set it to False"),
        ({"positions": "none", "attention": "linear"}, "model.attention 'linear' remembers all earlier tokens"),
    ],
)
def test_documents_that_the_model_cannot_keep_apart_are_refused_before_they_are_prepared(model, message, text):
    data = {"path": text, "format": "files"}
    with pytest.raises(UserError, match=f"^task.document_mask: {message}"):
        build(config_of("language_model", "transformer_lm", "", data=data, model=model))
