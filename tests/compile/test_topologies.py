"""Hardware that is not here: its names, the time of an exchange by hand, and, with the packages, its devices."""

from typing import NamedTuple

import pytest

from fxf.base.hardware import HARDWARE
from fxf.compile import topologies
from fxf.compile.costs import Collective
from fxf.compile.topologies import Topology


class Device(NamedTuple):
    """A device as JAX describes it."""

    coords: tuple[int, ...] = (0, 0, 0)
    process_index: int = 0


TPUS = [Device((x, y, 0)) for x in range(2) for y in range(16)]  # a line of 2 by a ring of 16
GPUS = [Device(process_index=i // 8) for i in range(16)]


@pytest.fixture(autouse=True)
def without_flags(monkeypatch):
    """Libtpu ends the process at a flag of the tests, which only a CPU knows."""
    monkeypatch.delenv("XLA_FLAGS", raising=False)


@pytest.mark.parametrize(
    ("kind", "n", "share"),
    [
        ("all-reduce", 8, 2 * 7 / 8),
        ("all-gather", 8, 7 / 8),
        ("reduce-scatter", 4, 3 / 4),
        ("collective-permute", 2, 1),
    ],
)
def test_devices_of_a_host_exchange_in_a_ring(kind, n, share):
    topology = Topology("h100:16", GPUS, HARDWARE["h100"])
    found = topology.traffic(Collective(kind, 1000, [list(range(n))]), GPUS)
    assert found == {"NVLink": (1000 * share, 1000 * share / 450e9)}
    assert topology.traffic(Collective(kind, 1000, [[0]]), GPUS) == {}


def test_hosts_exchange_over_the_network_and_their_devices_share_it():
    topology = Topology("h100:16", GPUS, HARDWARE["h100"])
    everyone = topology.traffic(Collective("all-gather", 1600, [list(range(16))]), GPUS)
    assert everyone == {"NVLink": (1400, 1400 / 450e9), "network": (100, 100 / 50e9)}
    pairs = topology.traffic(Collective("all-gather", 1600, [[i, i + 8] for i in range(8)]), GPUS)
    assert pairs == {"network": (800, 800 / 50e9)}


@pytest.mark.parametrize(
    ("group", "rings", "ways"),
    [([0, 16], None, 1), (list(range(16)), None, 2), (list(range(32)), None, 3), (list(range(32)), 2, 2)],
)
def test_a_tpu_sends_both_ways_along_a_ring_and_one_way_along_a_line_if_so_many_rings_share_it(group, rings, ways):
    topology = Topology("v5e:2x16", TPUS, HARDWARE["v5e"])
    sent = (len(group) - 1) / len(group) * 1000
    assert topology.traffic(Collective("all-gather", 1000, [group], rings), TPUS) == {
        "ICI": (sent, sent / (ways * 45e9))
    }


@pytest.mark.thorough  # needs the packages of EXTRAS=compile
@pytest.mark.parametrize(
    ("name", "n", "platform", "n_hosts"),
    [("h100:8", 8, "gpu", 1), ("h200:16", 16, "gpu", 2), ("v5e:2x4", 8, "tpu", 2), ("v5p:4x4x4", 64, "tpu", 16)],
)
def test_a_name_makes_as_many_devices(name, n, platform, n_hosts):
    devices = topologies.topology(name).devices
    assert len(devices) == n and {device.platform for device in devices} == {platform}
    assert len({device.process_index for device in devices}) == n_hosts
