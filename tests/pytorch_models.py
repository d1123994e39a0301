"""PyTorch and transformers for tests that build models with them."""

import tempfile
import warnings

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
    """Returns what fxf reads in the folder that a model of `transformers` writes."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save_pretrained(folder)
        return huggingface.load(folder)
