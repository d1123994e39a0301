"""What a process keeps: programs and memory; and what it tells of compiling and of the memory of devices."""

import stat
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

from fxf.base import compiled, memory
from fxf.base.compiled import seconds_of_compiling
from fxf.base.kept_programs import folder_of_programs, keep_programs


def config(folder=None, enabled=True):
    """Returns what `keep_programs` reads and changes of `jax.config`."""
    found = SimpleNamespace(jax_compilation_cache_dir=folder, jax_enable_compilation_cache=enabled)
    found.update = partial(setattr, found)
    return found


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))


def test_programs_are_kept_in_a_folder_that_only_the_user_can_read():
    keep_programs(found := config())
    assert found.jax_compilation_cache_dir == str(folder_of_programs())
    assert stat.S_IMODE(folder_of_programs().stat().st_mode) == 0o700
    assert found.jax_persistent_cache_min_compile_time_secs == 0


@pytest.mark.parametrize("given", [config("elsewhere"), config(enabled=False)])
def test_the_environment_may_name_another_folder_or_none(given):
    before = vars(given).copy()
    keep_programs(given)
    assert vars(given) == before
    assert not folder_of_programs().exists()


def test_the_fullest_device_counts_and_a_cpu_tells_nothing(monkeypatch):
    for statistics, expected in (
        ([None, None], {}),
        ([{"peak_bytes_in_use": 3}, {"peak_bytes_in_use": 5}], {"device_peak_bytes": 5}),
        ([{"peak_bytes_in_use": 3, "bytes_limit": 7}], {"device_peak_bytes": 3, "device_bytes": 7}),
    ):
        devices = [SimpleNamespace(memory_stats=lambda stats=stats: stats) for stats in statistics]
        monkeypatch.setattr(jax, "local_devices", lambda devices=devices: devices)
        assert memory.held_on_a_device() == expected


def test_what_is_compiled_inside_of_another_is_not_counted(monkeypatch):
    monkeypatch.setattr(compiled, "_spans", [])
    monkeypatch.setattr(compiled.time, "perf_counter", iter([7.0, 8.0, 12.0]).__next__)
    for event, duration in (("jaxpr_trace_duration", 2.0), ("jaxpr_trace_duration", 4.0), ("backend_compile", 3.0)):
        compiled._count(f"/jax/core/compile/{event}", duration)
    assert seconds_of_compiling() == 7  # the first trace is a part of the second


def test_jax_tells_of_each_program_once():
    function, x = jax.jit(lambda x: jnp.sin(x) + 1), jnp.ones(3)
    seconds = []
    for _ in range(2):
        before = seconds_of_compiling()
        function(x)
        seconds.append(seconds_of_compiling() - before)
    assert seconds[0] > 0 == seconds[1]
