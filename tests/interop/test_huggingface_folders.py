"""Folders of `transformers` that hold something wrong; neither `transformers` nor torch is needed to refuse them."""

import json
import os

import numpy as np
import pytest

from fxf.errors import UserError
from fxf.interop import huggingface
from fxf.interop.architectures import ARCHITECTURES
from fxf.models import MODELS
from helpers import random_params

pytest.importorskip("safetensors")

SIZES = {"n_layer": 1, "n_embd": 6, "n_inner": 7, "n_head": 3, "n_positions": 5, "activation_function": "gelu_new"}
RATES = {"layer_norm_epsilon": 1e-5, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
VOCAB_SIZE = 11


@pytest.fixture
def folder(tmp_path):
    """A folder with a small GPT-2."""
    config = huggingface.read_config(ARCHITECTURES["gpt2"], {**SIZES, **RATES}, "here")
    params = random_params(MODELS["transformer_lm"][1](config, VOCAB_SIZE).spec)
    huggingface.save(tmp_path / "gpt2", config, params, first=0, end=2, padding=1)
    huggingface.load(tmp_path / "gpt2")
    return tmp_path / "gpt2"


def refused(folder, message):
    with pytest.raises(UserError, match=message) as caught:
        huggingface.load(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_embd": "x"}, "n_embd: expected int, got 'x'"),
        ({"n_embd": None}, "n_embd: expected int, got None"),
        ({"n_embd": 6.0}, r"n_embd: expected int, got 6\.0"),
        ({"n_embd": True}, "n_embd: expected int, got True"),
        ({"n_embd": -6}, "model.d_model: expected at least 1, got -6"),
        ({"n_embd": 10**30}, r"n_embd: expected less than 2147483648, got 10+$"),
        ({"n_layer": 10**9}, r"the config has 1000000000 layers, but there are only \d+ tensors"),
        ({"n_head": [3]}, r"n_head: expected int, got \[3\]"),
        ({"layer_norm_epsilon": "small"}, "layer_norm_epsilon: expected float, got 'small'"),
        ({"activation_function": ["relu"]}, "activation_function: expected one of gelu, "),
        ({"vocab_size": 0}, "vocab_size: expected a positive int, got 0"),
        ({"vocab_size": "11"}, "vocab_size: expected a positive int, got '11'"),
        ({"model_type": "bart"}, "model_type: expected one of gpt2, bert, marian; got 'bart'$"),
        ({"model_type": "roberta"}, "model_type: expected one of gpt2, bert, marian; got 'roberta'$"),
        ({"quantization_config": {"bits": 8}}, "quantization_config: fxf cannot read quantized weights"),
        ({"model_type": {}}, "model_type: expected one of gpt2, bert, marian; got {}$"),
    ],
)
def test_a_config_with_a_wrong_value_is_one_line(folder, changes, message):
    path = folder / huggingface.CONFIG_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    refused(folder, message)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "config.json: not JSON: "),
        (b"\xff\xfe{\x00}\x00", "config.json: not JSON: "),
        (b"[" * 100_000, "config.json: not JSON: "),
        (b"[1]", "config.json: expected an object of keys"),
    ],
)
def test_a_config_that_is_no_object_is_one_line(folder, content, message):
    (folder / huggingface.CONFIG_FILE).write_bytes(content)
    refused(folder, message)


def change_tensors(folder, change):
    path = folder / huggingface.TENSORS_FILE
    tensors, _ = huggingface.read_tensors(path)
    change(tensors)
    huggingface.write_tensors(path, tensors, {})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros(6, np.int8), r"gpt2: transformer.ln_f.bias has type int8; expected floating-point numbers"),
        (np.zeros(6, bool), r"gpt2: transformer.ln_f.bias has type bool; expected floating-point numbers"),
        (np.array([0, np.nan, 0, np.inf, 0, 0]), r"transformer.ln_f.bias has 2 numbers that are infinite or NaN"),
        (np.array([0, 1e300, 0, 0, 0, 0]), r"transformer.ln_f.bias has 1 numbers that are infinite or NaN in float32"),
        (np.zeros((0, 6), np.float32), r"transformer.ln_f.bias has shape \[0, 6\]; expected \[6\]"),
    ],
)
def test_a_tensor_that_is_no_weights_is_named(folder, value, message):
    change_tensors(folder, lambda tensors: tensors.update({"transformer.ln_f.bias": value}))
    refused(folder, message)


def test_two_tensors_of_one_weight_are_named(folder):
    change_tensors(folder, lambda tensors: tensors.update({"ln_f.bias": np.zeros(6, np.float32)}))
    refused(folder, r"ln_f.bias and transformer.ln_f.bias are both names of transformer.ln_f.bias")


def test_a_table_that_is_repeated_has_to_be_the_same(folder):
    table = np.asarray(huggingface.load(folder).params["embedding"]["table"])
    change_tensors(folder, lambda tensors: tensors.update({"lm_head.weight": table}))
    huggingface.load(folder)
    change_tensors(folder, lambda tensors: tensors.update({"lm_head.weight": table + 1}))
    refused(folder, r"lm_head.weight differs from transformer.wte.weight; fxf has one table for both")


def test_half_precision_is_read_as_it_is(folder):
    before = huggingface.load(folder).params["norm"]["scale"]
    change_tensors(folder, lambda tensors: tensors.update({k: x.astype(np.float16) for k, x in tensors.items()}))
    after = huggingface.load(folder).params["norm"]["scale"]
    assert after.dtype == np.float32
    np.testing.assert_array_equal(after, np.asarray(before).astype(np.float16))


def test_a_pipe_is_refused_at_once(folder):
    (folder / huggingface.TENSORS_FILE).unlink()
    os.mkfifo(folder / huggingface.TENSORS_FILE)
    refused(folder, r"model.safetensors: expected a file, got a pipe")
