"""Inspection of a model while it reads a text, and its display on the page of a run."""

import json

import jax
import numpy as np
import pytest

import fxf.runs.api
from closeness import assert_close
from fxf.base.weights import count
from fxf.layers import chunked_attention
from fxf.runs import inside, probe
from fxf.runs.experiment import build
from helpers import random_params, table, with_attributes
from small_runs import tiny_config

TOKENS = ["0", "3", "1", "0", "1", "3"]  # read for the prompt 3 1 and the answer 1 3


@pytest.fixture(scope="module")
def reading():
    experiment = build(tiny_config(model={"n_layers": 2}))
    params = random_params(experiment.model.spec)
    return fxf.runs.api.Run(experiment, 0, params).probe("3 1", "1 3")


def test_attention_weights_are_shown_by_head_with_the_tokens_that_are_read(reading):
    shown = reading.matrices("block_1/attention/weights")
    assert (shown.values.shape, shown.titles) == ((2, 6, 6), ["head 0", "head 1"])
    assert shown.row_labels == shown.column_labels == TOKENS
    text = probe.as_text(shown, "weights").splitlines()
    begins = ["weights", "head 0, in percent", "    0  3  1  0  1  3", "0 100  0  0  0  0  0"]
    assert (text[:4], len(text)) == (begins, 1 + 2 * 8)
    assert reading.matrices("block_1/attention/weights", 1).titles == ["head 1"]
    np.testing.assert_array_equal(reading.matrices("block_1/attention/weights", 1).values, shown.values[1:])
    assert repr(reading).startswith("embedding/positions  1 x ") and "array(" not in repr(reading)


@pytest.mark.parametrize(("of", "expected"), table("inspected arrays"))
def test_an_array_of_any_shape_and_type_is_a_table(of, expected, reading):
    """An axis of tokens is labelled with their names."""
    name, value, (shape, second_line) = of["name"], np.array(of["value"], of["type"]), expected.split(" > ")
    shown = reading._replace(arrays={name: value.reshape(of["shape"])}).matrices(name)
    assert "x".join(map(str, shown.values.shape)) + " tokens" * (shown.row_labels == TOKENS) == shape
    assert shown.row_labels in ([], TOKENS) and shown.column_labels == []
    assert shown.titles == ([name] if len(shown.values) == 1 else [f"{name} {i}" for i in range(len(shown.values))])
    assert probe.as_text(shown, "table").splitlines()[3].split() == second_line.split()


def test_scanned_recomputed_and_chunked_blocks_show_the_same(reading, monkeypatch):
    monkeypatch.setattr(chunked_attention, "WORTHWHILE", 2)  # so that a few tokens make several chunks
    experiment, params, batch, arrays = reading
    changes = {"scan_blocks": True, "remat": "full", "attention_implementation": "chunked"}
    changed = {**experiment.config["model"], **changes}
    found = probe.intermediates_of(build({**experiment.config, "model": changed}), params, batch)
    assert list(found) == [name for name in arrays if not name.startswith("params/")]
    assert_close(found, {name: arrays[name] for name in found})


def test_queries_and_keys_are_the_tokens_that_attention_reads():
    names = ("block_0/attention", "encoder/block_0/attention", "decoder/block_0/cross_attention")
    expected = [("inputs", "inputs"), ("source", "source"), ("inputs", "source")]
    assert [probe.sides(f"{name}/weights") for name in names] == expected


def test_the_logit_lens_ends_in_the_models_output_and_shows_streams_outside_blocks(reading):
    experiment, params, batch, arrays = reading
    header, *rows = reading.lens()
    assert header == ("reads", "embedding", "block_0", "block_1")
    said = np.asarray(jax.nn.softmax(jax.jit(experiment.model.apply)(params, batch)))[0]
    assert [row[::3] for row in rows] == [(t, f"{p.argmax()} {p.max():.0%}") for t, p in zip(TOKENS, said, strict=True)]
    nested = dict.fromkeys(("residual", "block_1/block_0/inner_residual"), arrays["block_1/residual"])
    assert reading._replace(arrays=nested).lens()[0] == ("reads", "residual", "block_1/block_0")


def test_a_generated_answer_is_read_except_a_last_token_without_a_position(reading):
    experiment, params = reading.experiment, reading.params
    batch = probe.what_is_read(experiment, params, "3 1")
    assert 4 <= batch["inputs"].shape[1] <= experiment.max_len
    # So the answer has the maximum length.
    endless = experiment._replace(task=with_attributes(experiment.task, end_token=99))
    assert probe.what_is_read(endless, params, "3 1")["inputs"].shape == (1, experiment.max_len)
    answer = " ".join("1" * (experiment.max_len - 4))
    assert probe.what_is_read(experiment, params, "3 1", answer)["inputs"].shape == (1, experiment.max_len)


def contents(reading, answer="1 3"):
    return inside.contents(reading.experiment, 4, reading.params, [("3 1", answer)])


def test_a_page_shows_attention_in_percent_positions_the_lens_and_every_weight(reading):
    shown = contents(reading)
    (example,) = shown["examples"]
    assert (example["title"], shown["step"]) == ("3 1 → 1 3", 4)
    names = ["positions", "embedding of tokens and positions", "block_0/attention", "block_1/attention"]
    assert [part["name"] for part in example["maps"]] == names
    positions, _, attention, _ = example["maps"]
    assert len(positions["heads"][0]["values"]) == 6 * 6 and positions["columns"] == 6
    assert (attention["rowName"], attention["columnName"]) == ("query", "key")
    assert attention["rows"] == attention["columns"] == TOKENS
    values = np.array([head["values"] for head in attention["heads"]]).reshape(2, 6, 6)
    np.testing.assert_allclose(values, 100 * reading.arrays["block_0/attention/weights"][0], atol=0.051)  # one decimal
    assert example["lens"] == [list(row) for row in reading.lens()]
    assert sum(row[-1] for row in shown["weights"]) == shown["parameters"] == count(reading.experiment.model.spec)
    (full,) = contents(reading, "3 1 2 3 1 2 1 2")["examples"]  # an answer whose last token was not read
    assert len(full["lens"]) == 1 + reading.experiment.max_len


def test_of_many_layers_every_nth_is_shown_so_that_they_are_at_most_as_many_as_fit(reading, monkeypatch):
    arrays = {f"{name}/weights": reading.arrays["block_0/attention/weights"] for name in "abc"}
    monkeypatch.setattr(probe, "intermediates_of", lambda *_: arrays)
    monkeypatch.setattr(inside, "MOST_LAYERS", 2)
    assert [part["name"] for part in contents(reading)["examples"][0]["maps"]] == ["a", "c"]


def test_a_run_without_a_checkpoint_has_a_page_and_a_warning(tmp_path, caplog):
    (tmp_path / "config.json").write_text(json.dumps({"config": tiny_config(), "overrides": {}}))
    assert inside.write(tmp_path).exists() and not (tmp_path / "inside.json").exists()
    assert "the page shows nothing inside the model" in caplog.text


def test_the_examples_are_the_newest_samples_wrong_answers_first_and_tokens_that_cannot_be_seen_are_signs():
    rows = [("1", "1", "1"), ("2", "2", "3"), ("", None, "text\n---\n2nd"), ("4", "4", "5", True)]
    assert inside._texts([{"rows": []}, {"rows": rows}]) == [("2", "3"), ("4", "5")]
    assert inside._texts([{"rows": rows[2:3]}]) == [("text", ""), ("2nd", "")]
    assert [inside.visible(text) for text in (" a", "\n", "\t", "")] == ["␣a", "⏎", "⇥", "∅"]
