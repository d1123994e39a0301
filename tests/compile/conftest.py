import pytest


@pytest.fixture(autouse=True)
def without_flags(monkeypatch):
    """Libtpu ends the process at a flag of the tests, which only a CPU knows."""
    monkeypatch.delenv("XLA_FLAGS", raising=False)
