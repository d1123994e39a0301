"""How long a device takes for the kernels of a program, one after another, beside exchanges that go on."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from fxf.base.hardware import Rates
from fxf.compile.costs import Kernel
from fxf.compile.topologies import Topology


def seconds(kernels: Iterable[Kernel], topology: Topology, devices: Sequence[Any], rates: Rates) -> dict[str, float]:
    """Returns the seconds of each kind of kernel.

    A kernel takes as long as its operations or its traffic, whichever is longer. What was started runs beside the
    kernels that follow, one on each link or copier at a time, and takes only the time that the device waits for it.

    Args:
      devices: the program's devices in its order.
      rates: the operations and bytes a second, and the seconds of a start.
    """
    now, spent = 0.0, defaultdict[str, float](float)
    free: dict[str, float] = {}  # when what runs beside is done with a link
    ends: dict[str, tuple[str, float]] = {}  # the kind, and when it is done, of what was started
    for kernel in kernels:
        kind, end = ends.pop(kernel.awaits, ("", 0.0))
        if end > now:
            spent[kind] += end - now
            now = end
        links = (topology.traffic(each, devices).values() for each in kernel.collectives)
        exchange = sum(max((took for _, took in each), default=0.0) for each in links)
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
