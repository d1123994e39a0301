"""Models with random weights, built by `transformers` without a download: the same logits here and there."""

import functools

import jax
import numpy as np
import pytest

from closeness import assert_close
from fxf.interop import huggingface
from fxf.interop.config_json import write_config
from fxf.interop.weights_file import read_weights, write_tensors
from helpers import random_tokens
from pytorch_models import VOCAB_SIZE, imported, libraries, logits_of, theirs  # noqa: F401  One is a fixture.

pytest.importorskip("safetensors")

EVERY = pytest.mark.parametrize("name", ["gpt2", "bert", "marian"])


@functools.cache
def ours(name):
    loaded = imported(theirs(name))
    return loaded, jax.jit(loaded.model.apply)


def batch_of(name):
    """Returns a batch as fxf reads it, with padding where the model has some."""
    inputs = random_tokens((3, 7), VOCAB_SIZE)
    if name == "bert":
        mask = np.arange(7)[None] < np.array([[7], [2], [5]])
        return {"inputs": inputs, "input_mask": mask, "segments": random_tokens((3, 7), 3, seed=1)}
    if name == "marian":
        mask = np.arange(5)[None] < np.array([[5], [1], [3]])
        return {"inputs": inputs, "source": random_tokens((3, 5), VOCAB_SIZE, seed=1), "source_mask": mask}
    return {"inputs": inputs}


@EVERY
def test_logits_are_equal(name):
    (loaded, apply), batch = ours(name), batch_of(name)
    expected = logits_of(theirs(name), name, batch)
    real = batch.get("input_mask", np.ones(batch["inputs"].shape, bool))  # what padding reads is of no use
    assert np.abs(expected).max() > 0.5
    assert_close(apply(loaded.params, batch)[real], expected[real])


@EVERY
def test_tensors_go_back_as_they_came(name):
    loaded, state = ours(name)[0], theirs(name).state_dict()
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
    loaded = ours(name)[0]
    huggingface.save(tmp_path, loaded.config, loaded.params, first=0, end=2, padding=1)
    path = tmp_path / huggingface.TENSORS_FILE
    tensors = read_weights(path)
    write_tensors(path, {key.replace(old, new): value for key, value in tensors.items()}, {})
    jax.tree.map(np.testing.assert_array_equal, huggingface.load(tmp_path).params, loaded.params)
