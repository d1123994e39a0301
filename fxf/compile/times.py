"""The time of a program's kernels on a device, one after another, overlapped with asynchronous collectives."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from fxf.base.hardware import Rates
from fxf.compile.costs import Kernel
from fxf.compile.topologies import Topology


def seconds(kernels: Iterable[Kernel], topology: Topology, devices: Sequence[Any], rates: Rates) -> dict[str, float]:
    """Returns the seconds of each kind of kernel, the longest first.

    A kernel takes the longest of the times of its operations, memory traffic and collectives. Asynchronous kernels run
    beside those that follow, one at a time on the links and one on the copier; only the time that the device waits for
    them counts.

    Args:
      devices: the program's devices, in its order.
      rates: operations per second, bytes per second, and seconds per launch.
    """
    now, spent = 0.0, defaultdict[str, float](float)
    free: dict[str, float] = {}  # when the links or the copier are free again
    ends: dict[str, tuple[str, float]] = {}  # the kind and the end of each asynchronous kernel, by name
    for kernel in kernels:
        kind, end = ends.pop(kernel.awaits, ("", 0.0))
        if end > now:
            spent[kind] += end - now
            now = end
        traffics = (topology.traffic(collective, devices).values() for collective in kernel.collectives)
        exchange = sum(max((took for _, took in links), default=0.0) for links in traffics)
        rate = rates.attention if kernel.kind == "attention" else rates.products
        compute = kernel.work.done / (rate * topology.hardware.pace(kernel.work.dtype))
        traffic = kernel.n_bytes / rates.bandwidth
        took = max(compute, traffic, exchange)
        if kernel.starts:
            beside, kind, took = ("link", "collectives", exchange) if exchange else ("copier", kernel.kind, traffic)
            free[beside] = max(now, free.get(beside, 0.0)) + kernel.times * took
            ends[kernel.name] = kind, free[beside]
            took = compute
        took = kernel.times * (took + rates.launch * kernel.costs)
        spent[kernel.kind] += took
        now += took
    last, kind = max(((end, kind) for kind, end in ends.values()), default=(now, ""))
    if last > now:
        spent[kind] += last - now
    return {kind: spent[kind] for kind in sorted(spent, key=lambda kind: -spent[kind])}
