"""PyTorch and transformers for tests that build models with them."""

import warnings

import pytest


@pytest.fixture(scope="module", autouse=True)
def libraries(request):
    """Sets `torch` and `transformers` of the module: to import them takes seconds, which only its tests should wait."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("torch", "transformers"):
            setattr(request.module, name, pytest.importorskip(name))
