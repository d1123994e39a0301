"""Memory: how much is free, and whether a lower bound on the need fits into it before anything compiles."""

import resource
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from fxf.errors import UserError

GIB = 2**30
PARTS_NAMED = 4  # an error names the largest parts
CGROUPS = Path("/sys/fs/cgroup")
UNKNOWN = 2**63  # bytes, where the system gives no figure: everything fits


class Part(NamedTuple):
    """A part of the memory that is needed: its name, its bytes, and the config keys that make it smaller."""

    name: str
    n_bytes: int
    keys: tuple[str, ...] = ()


def total(parts: Sequence[Part]) -> int:
    return sum(part.n_bytes for part in parts)


def require(what: str, parts: Sequence[Part], free: int) -> None:
    """Raises a UserError if the parts exceed the `free` bytes; it names the largest parts and their keys."""
    if total(parts) <= free:
        return
    largest = sorted(parts, key=lambda part: part.n_bytes, reverse=True)[:PARTS_NAMED]
    largest = [part for part in largest if part.n_bytes >= total(parts) / 100]
    listed = ", ".join(f"{part.name} {gib(part.n_bytes)}" for part in largest)
    keys = list(dict.fromkeys(key for part in largest for key in part.keys))
    raise UserError(
        f"{what}: needs at least {gib(total(parts))} of memory, and {gib(free)} are free: {listed}; "
        f"change {', '.join(keys)}"
    )


def gib(n_bytes: int) -> str:
    return f"{n_bytes / GIB:,.1f} GiB" if n_bytes >= GIB / 10 else f"{n_bytes / GIB:.2g} GiB"


def free_on_a_device(n_devices: int = 1) -> int:
    """Returns the bytes that each of the first `n_devices` here can hold; CPU devices split the host's memory."""
    device = jax.local_devices()[0]
    if device.platform == "cpu":
        return free_on_the_host() // min(n_devices, jax.local_device_count())
    return (device.memory_stats() or {}).get("bytes_limit", UNKNOWN)


def held_on_a_device() -> dict[str, int]:
    """Returns the most bytes that a device here has held, and what it can hold; nothing where JAX does not know."""
    found = [stats for device in jax.local_devices() if (stats := device.memory_stats())]
    names = {"device_peak_bytes": "peak_bytes_in_use", "device_bytes": "bytes_limit"}
    known = {ours: [stats[name] for stats in found if name in stats] for ours, name in names.items()}
    return {ours: max(values) for ours, values in known.items() if values}


def free_on_the_host() -> int:
    """Returns the bytes that this process can still take: the least of machine, cgroups and address space.

    Swap counts as free, and so does memory that the system can give back, such as its file cache.
    """
    return min([_free_of_the_machine(), _free_address_space(), *_free_of_the_cgroups()])


def _free_of_the_machine() -> int:
    found = _numbers(Path("/proc/meminfo"))  # in KiB
    return 1024 * (found["MemAvailable"] + found.get("SwapFree", 0)) if "MemAvailable" in found else UNKNOWN


def _free_address_space() -> int:
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    taken = _numbers(Path("/proc/self/status")).get("VmSize")  # in KiB
    return UNKNOWN if limit == resource.RLIM_INFINITY or taken is None else max(limit - 1024 * taken, 0)


def _free_of_the_cgroups() -> Iterator[int]:
    """Yields the free bytes below each limit on this process: those of its cgroup and of the groups around it."""
    for line in _text(Path("/proc/self/cgroup")).splitlines():
        number, controllers, group = line.split(":", 2)
        if number == "0":
            yield from _free_of(CGROUPS, group, "memory.max", "memory.current", ("inactive_file", "active_file"))
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
            yield from _free_of(CGROUPS / "memory", group, *names, ("total_inactive_file", "total_active_file"))


def _free_of(root: Path, group: str, limit_file: str, usage_file: str, cache: Sequence[str]) -> Iterator[int]:
    # In a container the path may be the host's, while the container's own group is at the root.
    folder = root / group.strip("/")
    for place in [folder, *folder.parents] if folder != root else [root]:
        limit, usage = _text(place / limit_file).strip(), _text(place / usage_file).strip()
        if limit.isdecimal() and usage.isdecimal():
            statistics = _numbers(place / "memory.stat")
            swap = _text(place / "memory.swap.max").strip()
            swap_used = _text(place / "memory.swap.current").strip()
            more = int(swap) - int(swap_used) if swap.isdecimal() and swap_used.isdecimal() else None
            if more is None:
                more = 1024 * _numbers(Path("/proc/meminfo")).get("SwapFree", 0)
            yield max(int(limit) - int(usage) + sum(statistics.get(name, 0) for name in cache), 0) + max(more, 0)
        if place == root:
            return


def _numbers(path: Path) -> Mapping[str, int]:
    """Returns, for each line of the file, its first word and the number after it."""
    lines = (line.replace(":", " ").split() for line in _text(path).splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdecimal()}


def _text(path: Path) -> str:
    """Returns the content of a system file, or nothing if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def largest_product(jaxpr: Any) -> int:
    """Returns the bytes of the largest array that a matrix product in a jaxpr writes.

    XLA writes such an array whole. It may fuse a product with its reader only if one element is contracted.
    """
    largest = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            if any(equation.invars[0].aval.shape[axis] > 1 for axis in contracted):
                output = equation.outvars[0].aval
                largest = max(largest, output.size * output.dtype.itemsize)
        largest = max([largest, *(largest_product(inner) for inner in inner_jaxprs(equation.params))])
    return largest


def inner_jaxprs(params: Mapping[str, Any]) -> Iterator[Any]:
    """Yields the jaxprs among the parameters of an equation."""
    for value in params.values():
        for item in value if isinstance(value, list | tuple) else [value]:
            inner = getattr(item, "jaxpr", item)
            if hasattr(inner, "eqns"):
                yield inner
