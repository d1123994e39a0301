"""The time of kernels, against sums by hand."""

import jax
import pytest

from fxf.base.hardware import HARDWARE, Hardware, Rates
from fxf.compile import times
from fxf.compile.costs import Collective, Kernel
from fxf.compile.products import Work
from fxf.compile.topologies import Topology

# One operation, byte or byte over the link takes a second.
TOPOLOGY = Topology("cpu:2", [], Hardware((), flops=1, memory=1, bandwidth=1, link=1, network=1))
DEVICES = [jax.devices()[0]] * 2
RATES = Rates(products=1, attention=0.5, bandwidth=1)


def product(flops, n_bytes=0, dtype="bf16", kind="products", **options):
    return Kernel("p", kind, n_bytes, Work(flops, dtype, flops), **options)


def exchange(name, n_bytes, **options):
    """Returns a gather of two devices, each of which sends half of the bytes, over NVLink."""
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
        ([product(8, dtype="f32"), product(8, dtype="s8"), product(8, dtype="f8e4m3fn")], {"products": 24}),
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
def test_what_was_started_takes_the_time_that_the_device_waits_for_it(kernels, expected):
    assert times.seconds(kernels, TOPOLOGY, DEVICES, RATES) == expected


def test_each_kernel_that_computes_or_moves_something_starts_once_each_time():
    kernels = [product(5, times=3), Kernel("w", "copies", awaits="g")]
    assert times.seconds(kernels, TOPOLOGY, DEVICES, RATES._replace(launch=0.25))["products"] == 3 * 5.25


@pytest.mark.parametrize(
    ("dtype", "h100", "v5p"),
    [("bf16", 1, 1), ("f32", 0.5, 1), ("f32 highest", 0.068, 1 / 6), ("s8", 2, 2), ("f8e4m3fn", 2, 1)],
)
def test_products_of_other_types_have_peaks_of_their_own(dtype, h100, v5p):
    assert (HARDWARE["h100"].pace(dtype), HARDWARE["v5p"].pace(dtype)) == (h100, v5p)
