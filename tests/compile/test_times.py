"""Times of kernels and exchanges on other hardware, against sums by hand; and names of hardware."""

from typing import NamedTuple

import jax
import pytest

from fxf.base.hardware import HARDWARE, Hardware, Rates
from fxf.compile import times, topologies
from fxf.compile.costs import Collective, Kernel
from fxf.compile.products import Work
from fxf.compile.topologies import Topology
from helpers import table

# One operation, one byte, and one byte over the link each take a second.
TOPOLOGY = Topology("cpu:2", [], Hardware((), flops=1, memory=1, bandwidth=1, link=1, network=1))
DEVICES = [jax.devices()[0]] * 2
RATES = Rates(products=1, attention=0.5, bandwidth=1)


def product(flops, n_bytes=0, dtype="bf16", kind="products", **options):
    return Kernel("p", kind, n_bytes, Work(flops, dtype, flops), **options)


def exchange(name, n_bytes, **options):
    """Returns a gather over NVLink, in which each of two devices sends half of the bytes."""
    return Kernel(name, "collectives", collectives=(Collective("all-gather", n_bytes, [[0, 1]]),), **options)


COPY = Kernel("c", "copies", 2)
STARTED, AWAITED = COPY._replace(starts=True), Kernel("w", "copies", awaits="c")
WAIT = Kernel("w", "collectives", awaits="g")


@pytest.mark.parametrize(
    ("kernels", "expected"),
    [
        ([product(5, 3), product(2, 7)], {"products": 12}),
        ([product(5), COPY, product(2, kind="attention")], {"products": 5, "attention": 4, "copies": 2}),
        ([product(5, 3, times=9), product(2, repeats=True)], {"products": 47}),
        ([product(8, dtype=kind) for kind in ("f32", "s8", "f8e4m3fn")], {"products": 24}),
        ([exchange("g", 6), product(5)], {"products": 5, "collectives": 3}),
        ([exchange("g", 6, starts=True), product(5), WAIT], {"products": 5, "collectives": 0}),
        ([exchange("g", 20, starts=True), product(4), WAIT, product(1)], {"collectives": 6, "products": 5}),
        ([exchange("g", 20, times=3, starts=True), product(4, times=3), WAIT], {"collectives": 18, "products": 12}),
        ([exchange("g", 20, starts=True), product(4)], {"collectives": 6, "products": 4}),
        # Two exchanges share the link; a copy does not.
        ([exchange("h", 8, starts=True), exchange("g", 6, starts=True), STARTED, AWAITED, WAIT],
         {"collectives": 5, "copies": 2}),
    ],
)  # fmt: skip
def test_an_asynchronous_exchange_costs_the_time_that_the_device_waits_for_it(kernels, expected):
    assert times.seconds(kernels, TOPOLOGY, DEVICES, RATES) == expected


def test_each_kernel_that_computes_or_moves_data_is_launched_each_time():
    kernels = [product(5, times=3), Kernel("w", "copies", awaits="g")]
    assert times.seconds(kernels, TOPOLOGY, DEVICES, RATES._replace(launch=0.25))["products"] == 3 * 5.25


class Device(NamedTuple):
    """A device as JAX describes it."""

    coords: tuple[int, ...] = (0, 0, 0)
    process_index: int = 0


TPUS = [Device((x, y, 0)) for x in range(2) for y in range(16)]  # a line of 2 by a ring of 16
GPUS = [Device(process_index=i // 8) for i in range(16)]


@pytest.mark.parametrize(("case", "kind"), table("exchanges in a ring"))
def test_devices_of_a_host_exchange_in_a_ring(case, kind):
    topology, sent = Topology("h100:16", GPUS, HARDWARE["h100"]), 1000 * case["share"]
    found = topology.traffic(Collective(kind, 1000, [list(range(case["n"]))]), GPUS)
    assert found == {"NVLink": (sent, sent / 450e9)}
    assert topology.traffic(Collective(kind, 1000, [[0]]), GPUS) == {}


def test_hosts_exchange_over_the_network_and_their_devices_share_it():
    topology = Topology("h100:16", GPUS, HARDWARE["h100"])
    everyone = topology.traffic(Collective("all-gather", 1600, [list(range(16))]), GPUS)
    assert everyone == {"NVLink": (1400, 1400 / 450e9), "network": (100, 100 / 50e9)}
    pairs = topology.traffic(Collective("all-gather", 1600, [[i, i + 8] for i in range(8)]), GPUS)
    assert pairs == {"network": (800, 800 / 50e9)}


def test_a_tpu_sends_both_ways_along_a_ring_and_one_way_along_a_line():
    topology, row = Topology("v5e:2x16", TPUS, HARDWARE["v5e"]), [*range(32)]
    for group, rings, ways in (([0, 16], None, 1), (row[:16], None, 2), (row, None, 3), (row, 2, 2)):
        found, sent = Collective("all-gather", 1000, [group], rings), (len(group) - 1) / len(group) * 1000
        assert topology.traffic(found, TPUS) == {"ICI": (sent, sent / (ways * 45e9))}


@pytest.mark.thorough  # needs the packages of EXTRAS=compile
@pytest.mark.parametrize(("expected", "name"), table("devices of a topology"))
def test_a_topologys_name_gives_its_number_of_devices(expected, name):
    devices, (n, platform, n_hosts) = topologies.topology(name).devices, expected.values()
    assert len(devices) == n and {device.platform for device in devices} == {platform}
    assert len({device.process_index for device in devices}) == n_hosts
