"""Models with random weights, built by `transformers`, and back again; test_peft.py compares their logits."""

import functools

import jax
import numpy as np
import pytest

from fxf.interop import huggingface
from fxf.interop.config_json import write_config
from fxf.interop.weights_file import read_weights, write_tensors
from pytorch_models import imported, libraries, theirs  # noqa: F401  One is a fixture.

pytest.importorskip("safetensors")


@functools.cache
def ours(name):
    return imported(theirs(name))


@pytest.mark.parametrize("name", ["gpt2", "bert", "marian"])
def test_tensors_go_back_as_they_came(name):
    loaded, state = ours(name), theirs(name).state_dict()
    tensors = huggingface.tensors(write_config(loaded.config), loaded.params)
    for key, value in tensors.items():
        np.testing.assert_array_equal(value, state[key].numpy())
    assert {key for key, _ in theirs(name).named_parameters()} - {"model.encoder.embed_positions.weight",
            "model.decoder.embed_positions.weight"} <= set(tensors)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("gpt2", r"transformer.", ""),
        ("bert", "LayerNorm.weight", "LayerNorm.gamma"),
        ("bert", "LayerNorm.bias", "LayerNorm.beta"),
    ],
)
def test_names_in_older_files_are_read(name, old, new, tmp_path):
    loaded = ours(name)
    huggingface.save(tmp_path, loaded.config, loaded.params, first=0, end=2, padding=1)
    path = tmp_path / huggingface.TENSORS_FILE
    tensors = read_weights(path)
    write_tensors(path, {key.replace(old, new): value for key, value in tensors.items()}, {})
    jax.tree.map(np.testing.assert_array_equal, huggingface.load(tmp_path).params, loaded.params)
