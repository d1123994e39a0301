import pytest


@pytest.fixture(autouse=True)
def without_flags(monkeypatch):
    """Removes the tests' CPU-only flag, at which libtpu ends the process."""
    monkeypatch.delenv("XLA_FLAGS", raising=False)
