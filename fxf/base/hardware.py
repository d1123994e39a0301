"""What devices can do, by their makers."""

from typing import Any, NamedTuple

GIB = 2**30


class Rates(NamedTuple):
    """What kernels of a device reach: operations a second in bfloat16, bytes a second.

    Attributes:
      products: of large products.
      attention: of flash attention, in both passes.
      launch: seconds between a kernel and the next.
    """

    products: float
    attention: float
    bandwidth: float
    launch: float = 0.0


class Hardware(NamedTuple):
    """What a device can do, by its maker.

    Attributes:
      kinds: the names that JAX gives such devices (`device_kind`).
      flops: operations a second of dense products in bfloat16.
      memory: bytes.
      bandwidth: bytes a second between its memory and its cores.
      link: bytes a second to its neighbours, one way: of one link of a TPU, of all links of a GPU.
      network: bytes a second to other hosts, one way; 0 if the devices of all hosts are neighbours.
      ring: a TPU's links close to a ring along an axis whose length this divides.
      on_chip: the numbers of XLA's spaces of memory that are on the chip.
      reached: what its kernels reach, None if nobody here measured it.
      measured: how many times as long as the sum of its kernels, at those rates, a measured step took.
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
    measured: float = 1.0

    @property
    def peak(self) -> Rates:
        """What its maker says."""
        return Rates(self.flops, self.flops, self.bandwidth)

    def pace(self, dtype: str) -> float:
        """Returns how many times as fast as in bfloat16 it multiplies numbers of a type of XLA.

        A GPU multiplies float32 as TF32, a TPU as bfloat16, if the program does not ask for the highest precision.
        """
        slow = {"f64": 0.068, "f32 highest": 0.068, "f32": 0.5} if self.network else {"f32 highest": 1 / 6}
        fast = ("s8", "f8") if self.network else ("s8",)
        return 2 if dtype.startswith(fast) else slow.get(dtype, 1)


# Large products in bfloat16, cuDNN's attention, a stream through memory and the start of a kernel, on an H100. A step
# of GPT-2 small, measured on one (experiments/results/bench/gpu.md), took 1.065 times the sum over its kernels. Of TPUs
# nothing was measured.
_H100 = Rates(680e12, 475e12, 2.8e12, 2e-6)
HARDWARE = {
    # nvidia.com/en-us/data-center/h100 (SXM): 80 GB of HBM3, NVLink of 900 GB/s both ways; a ConnectX-7 of 400 Gb/s for
    # each GPU (DGX H100). Its memory is what XLA's description of the device says.
    "h100": Hardware(
        ("NVIDIA H100 80GB HBM3",), 989.4e12, 84_942_979_072, 3.35e12, 450e9, 50e9, reached=_H100, measured=1.065
    ),
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
    """Returns what a device of JAX can do, or None if it is not known, as of a CPU."""
    return next((hardware for hardware in HARDWARE.values() if device.device_kind in hardware.kinds), None)
