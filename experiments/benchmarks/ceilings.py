"""The time that a training step cannot go below on this machine, measured: its products, and the optimizer's bytes."""

import functools
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fxf import weights
from fxf.machine.memory import inner_jaxprs
from fxf.machine.speed import timed
from fxf.models.model import Batch, Model
from fxf.training.gradient import loss_and_gradient

OPTIMIZER_PASSES = 7  # Adam reads params, gradient and two moments, and writes all but the gradient
COPIED = 2**26  # bytes of the array whose copying is timed

# A product: the shapes of both factors, and the axes that are summed and that are shared.
Product = tuple[tuple[int, ...], tuple[int, ...], Any]


def products(jaxpr: Any, times: int = 1) -> Counter[Product]:
    """Returns how often a program computes each product; a scan's count once per turn."""
    found: Counter[Product] = Counter()
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            left, right = (variable.aval.shape for variable in equation.invars)
            found[left, right, equation.params["dimension_numbers"]] += times
        turns = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        for inner in inner_jaxprs(equation.params):
            found += products(inner, times * turns)
    return found


class Ceiling:
    """The seconds of a step in which each product runs at its shape's rate and the optimizer at copying speed."""

    def __init__(self, model: Model, batch: Batch) -> None:
        params = weights.shapes(model.spec)
        shapes = {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in batch.items()}
        jaxpr = jax.make_jaxpr(lambda p, b: loss_and_gradient(model, p, b))(params, shapes)
        self.counts = products(jaxpr.jaxpr)
        self.flops = sum(n * _flops(product) for product, n in self.counts.items())
        self.optimizer_bytes = OPTIMIZER_PASSES * 4 * weights.count(model.spec)
        self._products = {product: _timed_product(*product) for product in self.counts}
        self._copy = functools.partial(timed, jax.jit(lambda x: x + 1), jnp.ones(COPIED // 4, jnp.float32))

    def __call__(self) -> float:
        """Measures, and returns the seconds."""
        of_products = sum(n * self._products[product]() for product, n in self.counts.items())
        return of_products + self.optimizer_bytes * self._copy() / (2 * COPIED)


def _flops(product: Product) -> int:
    left, right, ((_, summed), (_, shared)) = product
    return 2 * math.prod(left) * math.prod(n for axis, n in enumerate(right) if axis not in (*summed, *shared))


def _timed_product(left: tuple[int, ...], right: tuple[int, ...], dimensions: Any) -> Callable[[], float]:
    rng = np.random.default_rng(0)
    x, y = (jnp.asarray(rng.standard_normal(shape, np.float32)) for shape in (left, right))
    return functools.partial(timed, jax.jit(lambda x, y: jax.lax.dot_general(x, y, dimensions)), x, y)
