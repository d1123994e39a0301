"""PyTorch and transformers for tests that build models with them."""

import functools
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest

from fxf.interop import huggingface
from fxf.interop.architectures import ARCHITECTURES
from helpers import table

VOCAB_SIZE, LENGTH = 31, 13
CASES = [(*text.split(), keys) for keys, text in table("models of transformers")]
CLASSES, CONFIGS = {name: kind for name, kind, _ in CASES}, {name: keys for name, _, keys in CASES}


@pytest.fixture(scope="module", autouse=True)
def libraries(request):
    """Sets `torch` and `transformers` of the module, whose imports take seconds that other tests need not wait."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("torch", "transformers"):
            setattr(request.module, name, pytest.importorskip(name))


def imported(model):
    """Returns fxf's import of the folder that a model of `transformers` writes, in several files."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save_pretrained(folder, max_shard_size=3000)
        assert len(list(Path(folder).glob("model-*.safetensors"))) > 1
        return huggingface.load(folder)


def assert_equal(found, expected):
    """Asserts that logits differ by at most 1e-5 of the largest one, and that tokens matter."""
    assert expected.std() > 0.1
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@functools.cache
def theirs(name):
    """Returns a model with random weights, biases and norms."""
    import torch
    import transformers

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = getattr(transformers, f"{CLASSES[name]}Config")(vocab_size=VOCAB_SIZE, **CONFIGS[name])
        model = getattr(transformers, ARCHITECTURES[name].name)(config).eval()
    generator = torch.Generator().manual_seed(0)
    for key, value in [*model.named_parameters(), *model.named_buffers()]:
        if value.is_floating_point() and "embed_positions" not in key and "inv_freq" not in key:
            # Small biases, and scales around one: otherwise the tokens would hardly matter.
            size, middle = 0.1 if key.endswith("bias") else 0.5, float(value.ndim == 1 and key.endswith("weight"))
            # In Marian's last block around minus one: otherwise the residual makes every token predict itself.
            middle = -middle if key == "model.decoder.layers.1.final_layer_norm.weight" else middle
            value.data.uniform_(middle - size, middle + size, generator=generator)
    return model


@functools.cache
def ours(name):
    return imported(theirs(name))


NAMES = {name: names for names, name in table("names of arrays in transformers")}


def logits_of(model, name, batch):
    """Returns the logits of a `transformers` model on a batch of fxf."""
    import torch

    arguments = {NAMES[name][key]: torch.tensor(value, dtype=torch.long) for key, value in batch.items()}
    with torch.no_grad():
        return model(**arguments).logits.numpy()
