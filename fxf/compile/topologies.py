"""Hardware to compile for without having it: its devices, as XLA describes them, and what they can do."""

import contextlib
import importlib
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from fxf.compile.costs import Collective
from fxf.errors import UserError, nearest
from fxf.machine.devices import compiling_for
from fxf.machine.hardware import HARDWARE, Hardware

HOST = 8  # GPUs of a host
# The cuDNN of constraints.txt. Its version decides what JAX asks of it.
CUDNN = (9, 20, 0)


# Without these libtpu looks for a TPU, writes about what it does not find, and serves one process at a time.
LIBTPU = {
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
}
GPUS = ("h100", "h200")

# What XLA asks of a GPU of compute capability 9.0 (stream_executor.GpuTargetConfigProto). The limits are those of the
# programming guide of CUDA, "Compute Capabilities".
_GPU = """
gpu_device_info {{
  threads_per_block_limit: 1024  threads_per_warp: 32  threads_per_core_limit: 2048
  shared_memory_per_block: 49152  shared_memory_per_block_optin: 232448  shared_memory_per_core: 233472
  registers_per_block_limit: 65536  registers_per_core_limit: 65536
  block_dim_limit_x: 2147483647  block_dim_limit_y: 65535  block_dim_limit_z: 65535
  thread_dim_limit_x: 1024  thread_dim_limit_y: 1024  thread_dim_limit_z: 64
  core_count: 132  fpus_per_core: 128  clock_rate_ghz: 1.98  l2_cache_size: 52428800
  memory_bandwidth: {bandwidth}  device_memory_size: {memory}  device_address_bits: 64
  cuda_compute_capability {{ major: 9  feature_extension: ACCELERATED_FEATURES }}
  device_vendor: "NVIDIA Corporation"  name: "{name}"
  driver_version: "13.0.0"  runtime_version: "13.0.0"  compile_time_toolkit_version: "13.0.0"
  device_interconnect_info {{ active_links: 18 }}
}}
platform_name: "CUDA"
dnn_version_info {{ major: {cudnn[0]}  minor: {cudnn[1]}  patch: {cudnn[2]} }}
device_description_str: "{name}"
"""


class Topology(NamedTuple):
    """Devices to compile for, and what each of them can do."""

    name: str
    devices: list[Any]
    hardware: Hardware

    @property
    def compiler_options(self) -> dict[str, Any]:
        """XLA's options. On a GPU it measures whether its own product or cuBLAS's is faster; here it takes cuBLAS's."""
        return {"xla_gpu_enable_triton_gemm": False} if self.hardware.network else {}

    def traffic(self, collective: Collective, devices: Sequence[Any]) -> dict[str, tuple[float, float]]:
        """Returns the bytes that a device sends over each link in a collective, and the seconds that they take.

        Each group is a ring, or a ring of hosts whose devices share what a host receives. The slowest group counts.

        Args:
          devices: the program's devices in its order.
        """
        found: dict[str, tuple[float, float]] = {}
        for group in collective.groups:
            for link, sent in self._within([devices[i] for i in group], collective).items():
                found[link] = max(found.get(link, sent), sent, key=lambda each: each[1])
        return found

    def _within(self, group: Sequence[Any], collective: Collective) -> dict[str, tuple[float, float]]:
        if self.hardware.network:
            n_hosts = len({device.process_index for device in group})
            n_here = -(-len(group) // n_hosts)
            across = _sent(collective, n_hosts) / n_here
            sent = {
                "NVLink": (_sent(collective, n_here), self.hardware.link),
                "network": (across, self.hardware.network),
            }
        else:
            axes = list(zip(*(device.coords for device in group), strict=True))
            lengths = [len({device.coords[axis] for device in self.devices}) for axis in range(len(axes))]
            # A line of devices sends over each of its links one way, a ring both ways.
            ways = [
                2 if n % self.hardware.ring == 0 else 1
                for n, along in zip(lengths, axes, strict=True)
                if len({*along}) > 1
            ]
            n_links = max(sum(ways), 1)
            n_links = min(n_links, collective.rings or n_links)
            sent = {"ICI": (_sent(collective, len(group)), self.hardware.link * n_links)}
        return {link: (n_bytes, n_bytes / rate) for link, (n_bytes, rate) in sent.items() if n_bytes}


def _sent(collective: Collective, n: int) -> float:
    """Returns the bytes that each of n devices sends in a ring."""
    if collective.kind == "collective-permute":
        return float(collective.n_bytes if n > 1 else 0)
    return (2 if collective.kind == "all-reduce" else 1) * (n - 1) / n * collective.n_bytes


def topology(name: str) -> Topology:
    """Returns the devices of a name such as `h100:8`, `v5e:2x4` or `v5p:4x4x4`. No such device is needed.

    Raises:
      UserError: there is no such hardware, or the packages that compile for it are not installed.
    """
    kind, _, size = name.partition(":")
    if kind not in HARDWARE:
        raise UserError(f"--topology: no hardware '{kind}'{nearest(kind, HARDWARE)} (here are {', '.join(HARDWARE)})")
    make = _gpus if kind in GPUS else _tpus
    return Topology(name, make(kind, size), HARDWARE[kind])


def _gpus(kind: str, size: str) -> list[Any]:
    from jax.experimental import topologies

    n = int(size) if size.isdecimal() and len(size) < 6 else 0
    if not n or (n > HOST and n % HOST):
        raise UserError(
            f"--topology: expected a number of GPUs, up to {HOST} or a multiple, behind {kind}:, got '{size}'"
        )
    _require("jax_cuda13_plugin")
    values = HARDWARE[kind]
    config = _GPU.format(name=values.kinds[0], bandwidth=int(values.bandwidth), memory=values.memory, cudnn=CUDNN)
    shape = f"1x{max(1, n // HOST)}x{min(n, HOST)}"  # slices, hosts, GPUs of a host
    return topologies.get_topology_desc(kind, platform="cuda", topology=shape, target_config=config).devices


def _tpus(kind: str, size: str) -> list[Any]:
    import jax
    from jax.experimental import topologies

    if not re.fullmatch(r"\d{1,3}x\d{1,3}(x\d{1,3})?", size):
        raise UserError(f"--topology: expected the sizes of a TPU slice behind {kind}:, such as 2x4, got '{size}'")
    _require("libtpu")
    for variable, value in LIBTPU.items():
        os.environ.setdefault(variable, value)
    try:
        return topologies.get_topology_desc(f"{kind}:{size}", platform="tpu").devices
    except jax.errors.JaxRuntimeError as error:
        why = str(error).strip().split("\n")[0]
        raise UserError(f"--topology: libtpu has no {kind}:{size}: {why}") from None


def _require(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise UserError(
            f"--topology: {package} is not installed; pip install 'fxf[compile]', or make environment EXTRAS=compile"
        )


@contextlib.contextmanager
def target(topology: Topology) -> Iterator[None]:
    """Inside, programs are traced for the topology's devices."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(compiling_for(topology.devices))
        # JAX keeps such a program, but cannot read it without the devices: it says so and compiles again.
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", "Error reading persistent compilation cache entry", UserWarning)
        if topology.hardware.network:
            # JAX asks the installed cuDNN for its version; XLA compiles without one.
            from unittest import mock

            versions = importlib.import_module("jax_cuda13_plugin._versions")
            number = CUDNN[0] * 10_000 + CUDNN[1] * 100 + CUDNN[2]
            stack.enter_context(mock.patch.object(versions, "cudnn_get_version", lambda: number))
        yield
