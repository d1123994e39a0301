import stat
from types import SimpleNamespace

import pytest

from fxf.base.kept_programs import folder_of_programs, keep_programs


class Config(SimpleNamespace):
    """What `keep_programs` reads and changes of `jax.config`."""

    def __init__(self, folder=None, enabled=True):
        super().__init__(jax_compilation_cache_dir=folder, jax_enable_compilation_cache=enabled)

    def update(self, name, value):
        setattr(self, name, value)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))


def test_programs_are_kept_in_a_folder_that_only_the_user_can_read():
    config = Config()
    keep_programs(config)
    assert config.jax_compilation_cache_dir == str(folder_of_programs())
    assert stat.S_IMODE(folder_of_programs().stat().st_mode) == 0o700
    assert config.jax_persistent_cache_min_compile_time_secs == 0


@pytest.mark.parametrize("given", [Config("elsewhere"), Config(enabled=False)])
def test_the_environment_may_name_another_folder_or_none(given):
    before = vars(given).copy()
    keep_programs(given)
    assert vars(given) == before
    assert not folder_of_programs().exists()
