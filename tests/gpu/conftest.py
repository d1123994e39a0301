import jax
import pytest


@pytest.fixture(autouse=True)
def gpu():
    """Fails a test where there is no GPU, because it would compare a CPU with itself."""
    if jax.default_backend() != "gpu":
        pytest.fail("needs an NVIDIA GPU, and JAX with CUDA: make environment PLATFORM=cuda", pytrace=False)
