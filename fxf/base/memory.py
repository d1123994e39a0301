"""The memory of devices, and sizes as text."""

import jax

GIB = 2**30


def gib(n_bytes: int) -> str:
    return f"{n_bytes / GIB:,.1f} GiB" if n_bytes >= GIB / 10 else f"{n_bytes / GIB:.2g} GiB"


def held_on_a_device() -> dict[str, int]:
    """Returns the largest peak and capacity of the local devices in bytes; {} where JAX does not know them."""
    found = [stats for device in jax.local_devices() if (stats := device.memory_stats())]
    names = {"device_peak_bytes": "peak_bytes_in_use", "device_bytes": "bytes_limit"}
    known = {ours: [stats[name] for stats in found if name in stats] for ours, name in names.items()}
    return {ours: max(values) for ours, values in known.items() if values}
