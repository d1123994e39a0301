"""The memory that devices tell of."""

from types import SimpleNamespace

import jax
import pytest

from fxf.base import memory


@pytest.mark.parametrize(
    ("statistics", "expected"),
    [
        ([None, None], {}),
        ([{"peak_bytes_in_use": 3}, {"peak_bytes_in_use": 5}], {"device_peak_bytes": 5}),
        ([{"peak_bytes_in_use": 3, "bytes_limit": 7}], {"device_peak_bytes": 3, "device_bytes": 7}),
    ],
)
def test_the_fullest_device_counts_and_a_cpu_tells_nothing(statistics, expected, monkeypatch):
    devices = [SimpleNamespace(memory_stats=lambda stats=stats: stats) for stats in statistics]
    monkeypatch.setattr(jax, "local_devices", lambda: devices)
    assert memory.held_on_a_device() == expected
