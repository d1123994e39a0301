"""Peak rates and memory of devices, as their makers state them."""

from typing import Any, NamedTuple

GIB = 2**30


class Rates(NamedTuple):
    """The rates that the kernels of a device reach.

    Attributes:
      products: operations per second of large matrix products in bfloat16.
      attention: the same of flash attention, forward and backward.
      bandwidth: bytes per second of memory.
      launch: seconds between one kernel and the next.
      measured: the time of a measured step over the sum of its kernels' times at these rates.
    """

    products: float
    attention: float
    bandwidth: float
    launch: float = 0.0
    measured: float = 1.0


class Hardware(NamedTuple):
    """The specification of a device, by its maker.

    Attributes:
      kinds: the names that JAX gives such devices (`device_kind`).
      flops: operations per second of dense products in bfloat16.
      memory: bytes.
      bandwidth: bytes per second between memory and cores.
      link: bytes per second to neighbours, one way: of one link of a TPU, of all links of a GPU.
      network: bytes per second to other hosts, one way; 0 if the devices of all hosts are neighbours.
      ring: a TPU's links form a ring along an axis whose length is a multiple of this.
      on_chip: the numbers of XLA's memory spaces that are on the chip.
      reached: the rates that its kernels reach, None if not measured.
    """

    kinds: tuple[str, ...]
    flops: float
    memory: int
    bandwidth: float
    link: float
    network: float = 0
    ring: int = 1
    on_chip: tuple[int, ...] = ()
    reached: Rates | None = None

    @property
    def peak(self) -> Rates:
        """The rates that its maker states."""
        return Rates(self.flops, self.flops, self.bandwidth)

    def pace(self, dtype: str) -> float:
        """Returns the speed of products in a type of XLA, as a multiple of that in bfloat16.

        Unless a program asks for the highest precision, a GPU multiplies float32 as TF32, a TPU as bfloat16.
        """
        slow = {"f64": 0.068, "f32 highest": 0.068, "f32": 0.5} if self.network else {"f32 highest": 1 / 6}
        fast = ("s8", "f8") if self.network else ("s8",)
        return 2 if dtype.startswith(fast) else slow.get(dtype, 1)


# Measured on an H100: large products in bfloat16, cuDNN's attention, streaming through memory, launching a kernel. A
# step of GPT-2 small (experiments/results/bench/gpu.md) took 1.065 times the sum over its kernels. No TPU was measured,
# nor an H200, for which these hold with its own bandwidth.
_H100 = Rates(680e12, 475e12, 2.8e12, 2e-6, measured=1.065)
HARDWARE = {
    # nvidia.com/en-us/data-center/h100 (SXM): 80 GB of HBM3, NVLink of 900 GB/s both ways; a ConnectX-7 of 400 Gb/s for
    # each GPU (DGX H100). Its memory is what XLA's description of the device says.
    "h100": Hardware(("NVIDIA H100 80GB HBM3",), 989.4e12, 84_942_979_072, 3.35e12, 450e9, 50e9, reached=_H100),
    # nvidia.com/en-us/data-center/h200: as the H100, with 141 GB of HBM3e.
    "h200": Hardware(
        ("NVIDIA H200",), 989.4e12, 151_397_597_184, 4.8e12, 450e9, 50e9, reached=_H100._replace(bandwidth=4.0e12)
    ),
    # cloud.google.com/tpu/docs/v5e, v5p, v6e: operations, memory (of which libtpu keeps a part on v5e and v6e) and its
    # bandwidth. Links: "How to Scale Your Model" (jax-ml.github.io/scaling-book/tpus); v5p has three axes, others two.
    "v5e": Hardware(("TPU v5 lite", "TPU v5e"), 197e12, int(15.75 * GIB), 819e9, 45e9, ring=16, on_chip=(1,)),
    "v5p": Hardware(("TPU v5", "TPU v5p"), 459e12, 95 * GIB, 2.765e12, 90e9, ring=4, on_chip=(1,)),
    "v6e": Hardware(("TPU v6 lite", "TPU v6e"), 918e12, int(31.25 * GIB), 1.64e12, 90e9, ring=16, on_chip=(1,)),
}


def hardware_of(device: Any) -> Hardware | None:
    """Returns the specification of a JAX device, or None if it is unknown, as a CPU's is."""
    return next((hardware for hardware in HARDWARE.values() if device.device_kind in hardware.kinds), None)
