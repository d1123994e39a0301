"""Hardware to compile for without having it: its devices, as XLA describes them, and their rates."""

import contextlib
import importlib
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jax
from jax.experimental.topologies import get_topology_desc
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

from fxf.base.config import one_of
from fxf.base.devices import compiling_for
from fxf.base.errors import UserError
from fxf.base.hardware import HARDWARE, Hardware
from fxf.compile.costs import Collective

HOST = 8  # GPUs per host
# The cuDNN version of constraints.txt. JAX chooses features of cuDNN by it.
CUDNN = (9, 20, 0)
DESCRIPTION = Path(__file__).with_name("hopper.txtpb")  # XLA's description of a GPU

# Without these, libtpu searches for a TPU, logs what it does not find, and serves one process at a time.
LIBTPU = {
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
}


class Topology(NamedTuple):
    """Devices to compile for, and the hardware of each."""

    name: str
    devices: list[Any]
    hardware: Hardware

    @property
    def compiler_options(self) -> dict[str, Any]:
        """XLA's options. With a GPU present, XLA would time its own kernels against cuBLAS's; here it uses cuBLAS's."""
        return {"xla_gpu_enable_triton_gemm": False} if self.hardware.network else {}

    def traffic(self, collective: Collective, devices: Sequence[Any]) -> dict[str, tuple[float, float]]:
        """Returns the bytes that a device sends over each link in a collective, and the seconds that they take.

        Each group is a ring, or a ring of hosts whose devices share what a host receives. The slowest group counts.

        Args:
          devices: the program's devices, in its order.
        """
        slowest: dict[str, tuple[float, float]] = {}
        for group in collective.groups:
            for link, n_bytes, rate in self._sent([devices[i] for i in group], collective):
                if n_bytes:
                    slowest[link] = max(slowest.get(link, (0.0, 0.0)), (n_bytes, n_bytes / rate), key=lambda x: x[1])
        return slowest

    def _sent(self, group: Sequence[Any], collective: Collective) -> list[tuple[str, float, float]]:
        """Returns each link of a device of the group, the bytes sent over it, and its bytes per second."""
        links = self.hardware
        if links.network:
            n_hosts = len({device.process_index for device in group})
            n_here = -(-len(group) // n_hosts)
            across = _in_a_ring(collective, n_hosts) / n_here
            return [("NVLink", _in_a_ring(collective, n_here), links.link), ("network", across, links.network)]
        # Along an axis of the slice, devices send one way if they form a line, and both ways if they form a ring.
        sizes = [len(set(coordinates)) for coordinates in zip(*(device.coords for device in self.devices), strict=True)]
        moved = [len(set(coordinates)) > 1 for coordinates in zip(*(device.coords for device in group), strict=True)]
        ways = [1 if size % links.ring else 2 for size, moves in zip(sizes, moved, strict=True) if moves]
        n_links = min(sum(ways) or 1, collective.rings or sum(ways) or 1)
        return [("ICI", _in_a_ring(collective, len(group)), links.link * n_links)]


def _in_a_ring(collective: Collective, n: int) -> float:
    """Returns the bytes that each of n devices sends in a ring algorithm."""
    if collective.kind == "collective-permute":
        return float(collective.n_bytes if n > 1 else 0)
    return (2 if collective.kind == "all-reduce" else 1) * (n - 1) / n * collective.n_bytes


def topology(name: str) -> Topology:
    """Returns the topology with a name such as `h100:8`, `v5e:2x4` or `v5p:4x4x4`. No such device need be present.

    Raises:
      UserError: there is no such hardware.
      ModuleNotFoundError: the packages that compile for it are not installed.
    """
    kind, _, size = name.partition(":")
    one_of(kind, HARDWARE, "--topology")
    make = _gpus if HARDWARE[kind].network else _tpus
    return Topology(name, make(kind, size), HARDWARE[kind])


def _gpus(kind: str, size: str) -> list[Any]:
    n = int(size) if size.isdecimal() and len(size) < 6 else 0
    if not n or (n > HOST and n % HOST):
        raise UserError(f"--topology: {kind}: expected a number of GPUs, up to {HOST} or a multiple, got '{size}'")
    importlib.import_module("jax_cuda13_plugin")
    values, text = HARDWARE[kind], DESCRIPTION.read_text(encoding="utf-8")
    config = text.format(name=values.kinds[0], bandwidth=int(values.bandwidth), memory=values.memory, cudnn=CUDNN)
    shape = f"1x{max(1, n // HOST)}x{min(n, HOST)}"  # slices, hosts, GPUs of a host
    return get_topology_desc(kind, platform="cuda", topology=shape, target_config=config).devices


def _tpus(kind: str, size: str) -> list[Any]:
    if not re.fullmatch(r"\d{1,3}x\d{1,3}(x\d{1,3})?", size):
        raise UserError(f"--topology: expected the sizes of a TPU slice after {kind}:, such as 2x4, got '{size}'")
    for variable, value in LIBTPU.items():
        os.environ.setdefault(variable, value)
    importlib.import_module("libtpu")
    try:
        return get_topology_desc(f"{kind}:{size}", platform="tpu").devices
    except jax.errors.JaxRuntimeError as error:
        why = str(error).strip().split("\n")[0]
        raise UserError(f"--topology: libtpu has no {kind}:{size}: {why}") from None


@contextlib.contextmanager
def target(topology: Topology) -> Iterator[None]:
    """A context in which programs are traced for the topology's devices."""
    device = topology.devices[0]
    # From JAX 0.11 on, Pallas asks the abstract mesh what to compile for.
    mesh = AbstractMesh((), (), abstract_device=AbstractDevice(device.device_kind, None, device.platform))
    with compiling_for(topology.devices), warnings.catch_warnings(), _cudnn(topology), use_abstract_mesh(mesh):
        # JAX caches such a program, but cannot read it back without the devices: it warns and compiles again.
        warnings.filterwarnings("ignore", "Error reading persistent compilation cache entry", UserWarning)
        yield


def _cudnn(topology: Topology) -> Any:
    """Returns a context in which JAX sees the cuDNN version CUDNN in place of the installed one."""
    if not topology.hardware.network:
        return contextlib.nullcontext()
    number = CUDNN[0] * 10_000 + CUDNN[1] * 100 + CUDNN[2]
    return mock.patch("jax_cuda13_plugin._versions.cudnn_get_version", lambda: number)  # XLA needs no cuDNN to compile
