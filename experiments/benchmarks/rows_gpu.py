"""Rows on an NVIDIA GPU: matrix products, and training of GPT-2 small in bfloat16.

--quick runs them at small sizes on any device.
"""

import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from experiments.benchmarks import rows_training as training
from experiments.benchmarks.rows import Measured, Row, Rows, Settings, Sizes, Way
from experiments.benchmarks.rows_process import product_ways
from fxf.base.devices import require_devices
from fxf.base.errors import UserError
from fxf.base.hardware import hardware_of
from fxf.base.operations import operations
from fxf.base.weights import shapes
from fxf.layers import fp8


def require_gpu(settings: Settings) -> None:
    """Lets the processes of a row share the GPU's memory. Raises a UserError if there is none, unless `quick`."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    if require_devices()[0].platform != "gpu" and not settings.quick:
        raise UserError(f"needs an NVIDIA GPU; the device here is {jax.devices()[0].device_kind}")


def gpu_gpt2(settings: Settings) -> Iterator[Row]:
    """GPT-2 small in bfloat16 with flash attention, beside PyTorch with its own, and the GPU's nominal peak."""
    require_gpu(settings)
    rows, length, attention = (2, 64, "chunked") if settings.quick else (32, 1024, "flash")
    sizes = Sizes(1 if settings.quick else 12, 768, 12, length, training.GPT2_VOCAB_SIZE, gpt2=True, dtype="bfloat16")
    batch = training.random_tokens(rows, length, training.GPT2_VOCAB_SIZE)
    make = functools.partial(training.fxf_gpt, sizes, batch, attention)
    ways = {"fxf": functools.partial(training.ours, make, settings)}
    for name, peer in training.gpt_peers(sizes, batch, settings).items():
        if name.startswith("PyTorch"):
            ways[name] = functools.partial(training.theirs, peer)
    if known := hardware_of(jax.devices()[0]):
        ways["peak"] = functools.partial(_peak, sizes, batch, settings.steps / known.flops)
    what = f"GPT-2 small in bfloat16, {rows} rows of {length:,} tokens"
    yield training.training_row(what, ways, rows * length, settings, 0.1)


def _peak(sizes: Sizes, batch: Mapping[str, Any], seconds: float) -> Way:
    """Returns the seconds of the model's products, given the seconds per operation."""
    model = training.lm(sizes)
    forward = jax.make_jaxpr(model.apply)(shapes(model.spec, jnp.float32), batch)
    flops = 3 * operations(forward.jaxpr).flops  # a backward pass takes twice the operations of the forward pass
    return Way(lambda: Measured(seconds * flops))


def gpu_products(settings: Settings) -> Iterator[Row]:
    """The product of two matrices in bfloat16, large enough to approach the GPU's peak."""
    require_gpu(settings)
    n, times = 64 if settings.quick else 8192, 20
    what, amount = f"product of two matrices in bfloat16, {n} x {n}", times * 2 * n**3 / 1e12
    yield Row(what, "TFLOP/s", amount, product_ways(n, times, "bfloat16", settings.threads))


def rates(settings: Settings) -> Iterator[dict[str, Any]]:
    """Measures single operations: the step's matrix products, a large one, and a copy."""
    n, d, v, large = (512, 64, 1024, 256) if settings.quick else (32768, 768, training.PADDED, 8192)
    sizes = {"q": (n, d, d), "up": (n, d, 4 * d), "down": (n, 4 * d, d), "logits": (n // 4, d, v)}
    sizes |= {"gradient of up": (d, n, 4 * d), "large": (large,) * 3}
    products = {name: (shape, jax.jit(jnp.matmul)) for name, shape in sizes.items()}
    products["large, of 8 bits"] = sizes["large"], jax.jit(fp8.product)  # includes finding and applying the scales
    for name, ((a, b, c), product) in products.items():
        left, right = (jax.random.normal(jax.random.key(i), s, jnp.bfloat16) for i, s in enumerate([(a, b), (b, c)]))
        yield {"product": name, "shape": [a, b, c], "TFLOP/s": 2 * a * b * c / seconds_of(product, left, right) / 1e12}
    x = jnp.ones((n, 4 * d))
    yield {"copy": f"{x.nbytes / 1e6:.0f} MB", "GB/s": 2 * x.nbytes / seconds_of(jax.jit(lambda x: x + 1), x) / 1e9}


def seconds_of(function: Callable[..., Any], *arrays: Any) -> float:
    """Returns the seconds of a call in a second group of 30; the first compiles, and takes memory for 30 results."""
    for _ in range(2):
        start = time.perf_counter()
        jax.block_until_ready([function(*arrays) for _ in range(30)])
    return (time.perf_counter() - start) / 30


ROWS: dict[str, Rows] = {"gpu_products": gpu_products, "gpu_gpt2": gpu_gpt2}
