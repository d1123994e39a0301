"""The time of a program on this machine: its products, each at the speed of its shape here, and the rest as copying."""

import functools
import math
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fxf.machine.costs import Cost
from fxf.machine.products import Product

TYPES = {"f32": jnp.float32, "f64": jnp.float64, "bf16": jnp.bfloat16, "f16": jnp.float16, "s32": jnp.int32}
COPIED = 2**26  # bytes of the largest array whose copying is timed
SECONDS, CALLS, LONGEST = 1e-2, 5, 0.3  # of a timing: at least so many seconds and calls, but no more after the longest


class Prediction(NamedTuple):
    """The seconds of a program: of its products of matrices, and of all other traffic to memory."""

    products: float
    traffic: float

    @property
    def seconds(self) -> float:
        return self.products + self.traffic


def predicted(cost: Cost, n_bytes: int) -> Prediction:
    """Returns the time of a program on the first device here. It measures the machine, which takes some seconds.

    Each product takes what a product of its shape and type takes alone. Other instructions take what copying as many
    bytes takes, in arrays as large as the memory that the program works in.

    Args:
      n_bytes: of the program's arguments and temporaries.
    """
    counts: Counter[Product] = Counter()
    for _, times, part in cost.places():
        for product in part.products:
            counts[product] += times
    products = sum(n * seconds_of_product(product) for product, n in counts.items())
    copied = min(COPIED, 2 ** max(n_bytes // 2, 1).bit_length())
    return Prediction(products, cost.total(lambda part: part.other_bytes) * seconds_of_copying(copied) / (2 * copied))


@functools.cache
def seconds_of_product(product: Product) -> float:
    """Returns the seconds of a product on the first device here, measured."""
    dtype, dimensions = TYPES.get(product.dtype, jnp.float32), (product.summed, product.shared)
    multiply = jax.jit(lambda left, right: jax.lax.dot_general(left, right, dimensions))
    return timed(multiply, jnp.ones(product.left, dtype), jnp.ones(product.right, dtype))


@functools.cache
def seconds_of_copying(n_bytes: int) -> float:
    """Returns the seconds in which the first device here reads an array and writes another, measured."""
    return timed(jax.jit(lambda x: x + 1), jnp.ones(n_bytes // 4, jnp.float32))


def timed(function: Callable[..., Any], *arguments: Any) -> float:
    """Returns the seconds of a call, the least of a few."""
    jax.block_until_ready(function(*arguments))
    best, spent, calls = math.inf, 0.0, 0
    while (spent < SECONDS or calls < CALLS) and spent < LONGEST:
        start = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        took = time.perf_counter() - start
        best, spent, calls = min(best, took), spent + took, calls + 1
    return best
