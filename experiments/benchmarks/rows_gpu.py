"""Rows on an NVIDIA GPU: matrix products, and training of GPT-2 small in bfloat16.

--quick runs them at small sizes on any device.
"""

import functools
import os
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from experiments.benchmarks import rows_training as training
from experiments.benchmarks.rows import Measured, Row, Rows, Settings, Way
from experiments.benchmarks.rows_process import product_ways
from fxf.base.devices import require_devices
from fxf.base.errors import UserError
from fxf.base.hardware import hardware_of
from fxf.base.operations import operations
from fxf.base.weights import shapes


def require_gpu(settings: Settings) -> None:
    """Lets the processes of a row share the GPU's memory. Raises a UserError if there is none, unless `quick`."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    if require_devices()[0].platform != "gpu" and not settings.quick:
        raise UserError("the rows gpu_* need an NVIDIA GPU")


def gpu_gpt2(settings: Settings) -> Iterator[Row]:
    """GPT-2 small in bfloat16 with flash attention, beside PyTorch with its own, and the GPU's nominal peak."""
    require_gpu(settings)
    rows, length, attention = (2, 64, "chunked") if settings.quick else (32, 1024, "flash")
    sizes = training.sizes_of(1 if settings.quick else 12, 768, 12, length, training.GPT2_VOCAB_SIZE, gpt2=True)
    sizes = sizes._replace(dtype="bfloat16")
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


def _peak(sizes: Any, batch: Mapping[str, Any], seconds: float) -> Way:
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


ROWS: dict[str, Rows] = {"gpu_products": gpu_products, "gpu_gpt2": gpu_gpt2}
