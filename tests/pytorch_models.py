"""PyTorch and transformers for tests that build models with them."""

import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest

from fxf.interop import huggingface


@pytest.fixture(scope="module", autouse=True)
def libraries(request):
    """Sets `torch` and `transformers` of the module: to import them takes seconds, which only its tests should wait."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("torch", "transformers"):
            setattr(request.module, name, pytest.importorskip(name))


def imported(model):
    """Returns what fxf reads in the folder that a model of `transformers` writes, in several files."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save_pretrained(folder, max_shard_size=3000)
        assert len(list(Path(folder).glob("model-*.safetensors"))) > 1
        return huggingface.load(folder)


def assert_equal(found, expected):
    """Asserts that logits differ by at most 1e-5 of the largest one, and that tokens matter."""
    assert expected.std() > 0.1
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
