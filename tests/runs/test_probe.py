import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxf.runs.api
from closeness import assert_close
from fxf.base.errors import UserError
from fxf.layers import chunked_attention
from fxf.runs import probe
from fxf.runs.experiment import build
from helpers import random_params, with_attributes
from small_runs import tiny_config


@pytest.fixture(scope="module")
def looked_into():
    experiment = build(tiny_config(model={"n_layers": 2}))
    params = random_params(experiment.model.spec)
    batch = experiment.task.to_batch("3 1", "1 3")
    return probe.Reading(experiment, params, batch, probe.arrays_inside(experiment, params, batch))


def test_attention_weights_are_shown_by_head_with_the_tokens_that_are_read(looked_into):
    shown = looked_into.matrices("block_1/attention/weights")
    assert shown.values.shape == (2, 6, 6)
    assert shown.titles == ["head 0", "head 1"]
    assert shown.row_labels == shown.column_labels == ["0", "3", "1", "0", "1", "3"]
    text = probe.as_text(shown, "weights").splitlines()
    assert text[:3] == ["weights", "head 0, in percent", "    0  3  1  0  1  3"]
    assert text[3] == "0 100  0  0  0  0  0"
    assert len(text) == 1 + 2 * 8
    assert looked_into.matrices("block_1/attention/weights", 1).titles == ["head 1"]
    with pytest.raises(UserError, match=r"^head: expected less than 2, got 2$"):
        looked_into.matrices("block_1/attention/weights", 2)
    assert repr(looked_into).startswith("embedding/positions  1 x ") and "array(" not in repr(looked_into)


def test_weights_of_the_model_are_shown_without_labels(looked_into):
    params = looked_into.params
    shown = looked_into.matrices("params/embedding/table")
    np.testing.assert_array_equal(shown.values[0], params["embedding"]["table"])
    assert shown.row_labels == shown.column_labels == []


def test_a_name_that_is_not_there_is_named(looked_into):
    with pytest.raises(UserError, match=r"^no array 'block_1/attention/weight' here; did you mean"):
        looked_into.matrices("block_1/attention/weight")


NUMBERS = np.arange(24, dtype=np.float32)
FLOATS = [f"{i}.00" for i in range(6)]


@pytest.mark.parametrize(
    ("name", "value", "shape", "rows", "row_name", "second_line"),
    [
        ("matrix", NUMBERS.reshape(6, 4), (1, 6, 4), [], "row", ["0", *FLOATS[:4]]),
        ("scalar", np.float32(7), (1, 1, 1), [], "row", ["0", "7.00"]),
        ("vector", NUMBERS[:3], (1, 1, 3), [], "row", ["0", *FLOATS[:3]]),
        ("ids", np.arange(6, dtype=np.int32)[None], (1, 1, 6), [], "row", ["0", *map(str, range(6))]),
        ("chosen", np.array([[True, False]]), (1, 1, 2), [], "row", ["0", "1", "0"]),
        ("half", jnp.ones((2, 3), jnp.bfloat16), (1, 2, 3), [], "row", ["0", *3 * ["1.00"]]),
        ("waves", np.array([[1 + 2j]]), (1, 1, 1), [], "row", ["0", "1.00+2.00j"]),
        ("gates", NUMBERS.reshape(1, 6, 4), (1, 6, 4), "031013", "token", ["0", *FLOATS[:4]]),
        ("experts", NUMBERS.reshape(1, 2, 6, 2), (2, 6, 2), "031013", "token", ["0", *FLOATS[:2]]),
        ("stack", NUMBERS.reshape(2, 1, 2, 6), (2, 2, 6), [], "row", ["0", *FLOATS[:6]]),
        ("router/weights", NUMBERS.reshape(1, 6, 4), (1, 6, 4), "031013", "token", ["0", *FLOATS[:4]]),
        ("cross/weights", NUMBERS.reshape(6, 4), (1, 6, 4), [], "row", ["0", *FLOATS[:4]]),
        ("params/temperature", np.float32(7), (1, 1, 1), [], "row", ["0", "7.00"]),
    ],
)
def test_an_array_of_any_shape_and_type_is_a_table(name, value, shape, rows, row_name, second_line, looked_into):
    shown = looked_into._replace(arrays={name: np.asarray(value)}).matrices(name)
    assert (shown.values.shape, shown.row_labels, shown.row_name) == (shape, list(rows), row_name)
    assert shown.titles == ([name] if len(shown.values) == 1 else [f"{name} {i}" for i in range(shape[0])])
    assert probe.as_text(shown, "table").splitlines()[3].split() == second_line


def test_a_loaded_run_is_looked_into_from_python(looked_into):
    experiment, params, arrays = looked_into.experiment, looked_into.params, looked_into.arrays
    inside = fxf.runs.api.Run(experiment, 0, params).probe("3 1", "1 3")
    jax.tree.map(np.testing.assert_array_equal, inside.arrays, arrays)
    assert inside.lens()[0] == ("reads", "embedding", "block_0", "block_1")


def test_a_loop_over_blocks_that_are_computed_again_shows_the_same(looked_into):
    experiment, params, batch, arrays = looked_into
    looped = build({**experiment.config, "model": {**experiment.config["model"], "scan_blocks": True, "remat": "full"}})
    found = probe.arrays_inside(looped, params, batch)
    assert list(found) == list(arrays)
    assert_close(found, arrays)


def test_attention_in_chunks_shows_the_same(looked_into, monkeypatch):
    monkeypatch.setattr(chunked_attention, "WORTHWHILE", 2)  # so that few tokens are several chunks
    experiment, params, batch, arrays = looked_into
    changed = {**experiment.config["model"], "scan_blocks": True, "attention_implementation": "chunked"}
    assert_close(probe.arrays_inside(build({**experiment.config, "model": changed}), params, batch), arrays)


def test_the_logit_lens_ends_in_what_the_model_says_and_shows_a_stream_that_lies_in_no_block(looked_into):
    experiment, params, batch, arrays = looked_into
    header, *rows = looked_into.lens()
    assert header == ("reads", "embedding", "block_0", "block_1")
    assert [row[0] for row in rows] == ["0", "3", "1", "0", "1", "3"]
    said = np.asarray(jax.jit(experiment.model.apply)(params, batch))[0].argmax(-1)
    assert [row[-1].split()[0] for row in rows] == [str(token) for token in said]
    header, *_ = looked_into._replace(arrays={"residual": arrays["block_1/residual"]}).lens()
    assert header == ("reads", "residual")


def test_an_answer_of_its_own_is_read_but_for_a_last_token_that_fits_no_position(looked_into):
    experiment, params = looked_into.experiment, looked_into.params
    batch = probe.what_is_read(experiment, params, "3 1")
    assert 4 <= batch["inputs"].shape[1] <= experiment.max_len
    # So the answer is as long as can be.
    endless = experiment._replace(task=with_attributes(experiment.task, end_token=99))
    assert probe.what_is_read(endless, params, "3 1")["inputs"].shape == (1, experiment.max_len)


def test_more_than_the_positions_of_the_model_is_refused(looked_into):
    experiment, params = looked_into.experiment, looked_into.params
    answer = " ".join("1" * (experiment.max_len - 4))
    assert probe.what_is_read(experiment, params, "3 1", answer)["inputs"].shape == (1, experiment.max_len)
    with pytest.raises(UserError, match=r"prompt and answer are 12 tokens to read; model.max_len is 11"):
        probe.what_is_read(experiment, params, "3 1", f"{answer} 1")
