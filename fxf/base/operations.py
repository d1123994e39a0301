"""The floating-point operations of a traced program: those of its matrix products and convolutions.

Elementwise operations, such as activations, do not count. Nor do decompositions, solvers, Fourier transforms, foreign
functions and callbacks; their primitives are named as not counted.
"""

import math
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxprs_in_params

NOT_COUNTED = {
    *("cholesky", "eig", "eigh", "fft", "geqp3", "geqrf", "hessenberg", "householder_product", "lu", "qr", "schur"),
    *("svd", "triangular_solve", "tridiagonal", "tridiagonal_solve", "ffi_call", "io_callback", "pure_callback"),
}


# A scope of this name says that only a share of the operations of its products counts.
COUNTED = "{} of {} operations"


class Operations(NamedTuple):
    """A number of operations.

    Attributes:
      uncounted: names of what computes more, an unknown number of operations.
    """

    flops: int = 0
    uncounted: frozenset[str] = frozenset()

    def times(self, n: int) -> "Operations":
        return self._replace(flops=n * self.flops)


def operations(jaxpr: Any) -> Operations:
    """Returns the operations of a jaxpr on all devices, with those of all iterations of a scan.

    A product of [m, k] and [k, n] counts 2mkn, of complex numbers 8mkn. Of the branches of a `cond` the largest counts.
    Of a `while` loop, whose length is unknown, one iteration counts, and the loop is named as not counted.
    """
    return _sum(map(_of_equation, jaxpr.eqns))


def _sum(several: Iterable[Operations]) -> Operations:
    flops, uncounted = zip(Operations(), *several, strict=True)
    return Operations(sum(flops), frozenset().union(*uncounted))


def _of_equation(equation: Any) -> Operations:
    name, params = equation.primitive.name, equation.params
    if name in FORMULAS:
        shapes = [[v.aval.shape for v in variables] for variables in (equation.invars, equation.outvars)]
        is_complex = jnp.issubdtype(equation.outvars[0].aval.dtype, jnp.complexfloating)
        scope = re.search(COUNTED.format(r"(\d+)", r"(\d+)"), str(equation.source_info.name_stack))
        counted, of = map(int, scope.groups()) if scope else (1, 1)
        return Operations((4 if is_complex else 1) * FORMULAS[name](params, *shapes) * counted // of)
    if name == "custom_linear_solve":  # its other functions serve derivatives
        return operations(params["jaxprs"].solve.jaxpr)
    if name == "pallas_call" and params["cost_estimate"] is not None:  # the kernel's own estimate
        return Operations(params["cost_estimate"].flops)
    inner = [operations(each) for each in jaxprs_in_params(params)]
    total, unknown = _sum(inner), {name} if name in NOT_COUNTED else set()
    if name == "cond":
        total = total._replace(flops=max(each.flops for each in inner))
    elif name == "scan":
        total = total.times(params["length"])
    elif name == "shard_map":  # its shapes are those of one device
        total = total.times(math.prod(params["mesh"].shape[axis] for axis in params["newly_manual_axes"]))
    elif name == "while" and total != Operations():
        unknown = {"iterations of a while loop"}
    elif name == "pallas_call":  # one block's operations, for each block of the grid
        grid = params["grid_mapping"].grid
        countable = total.flops and all(isinstance(n, int) for n in grid)
        total, unknown = (total.times(math.prod(grid)), set()) if countable else (Operations(), {name})
    return total._replace(uncounted=total.uncounted | unknown)


Shapes = list[tuple[int, ...]]


def _dot_general(params: Any, inputs: Shapes, outputs: Shapes) -> int:
    (contracted, _), _ = params["dimension_numbers"]
    return 2 * math.prod(outputs[0]) * math.prod(inputs[0][axis] for axis in contracted)


def _ragged_dot_general(params: Any, inputs: Shapes, outputs: Shapes) -> int:
    """Returns the operations of a grouped product, in which each element on the left belongs to one group."""
    numbers = params["ragged_dot_dimension_numbers"]
    (_, contracted), (_, batch) = numbers.dot_dimension_numbers
    shared = {*contracted, *batch, *numbers.rhs_group_dimensions}
    return 2 * math.prod(inputs[0]) * math.prod(n for axis, n in enumerate(inputs[1]) if axis not in shared)


def _convolution(params: Any, inputs: Shapes, outputs: Shapes) -> int:
    numbers, pairs = params["dimension_numbers"], 1
    for i, (lhs, rhs, out) in enumerate(
        zip(numbers.lhs_spec[2:], numbers.rhs_spec[2:], numbers.out_spec[2:], strict=True)
    ):
        sizes = inputs[0][lhs], inputs[1][rhs], outputs[0][out]
        dilations = params["lhs_dilation"][i], params["rhs_dilation"][i]
        pairs *= overlaps(*sizes, params["window_strides"][i], params["padding"][i][0], *dilations)
    batch, features = (outputs[0][axis] for axis in numbers.out_spec[:2])
    return 2 * pairs * batch * features * inputs[1][numbers.rhs_spec[1]]


def overlaps(n_in: int, n_window: int, n_out: int, stride: int, low: int, lhs_dilation: int, rhs_dilation: int) -> int:
    """Returns how many pairs of a window element and an input element a convolution multiplies, along one axis.

    Args:
      low: the padding in front of the input.
      lhs_dilation, rhs_dilation: the distances of the elements of the input and of the window.
    """
    starts, steps = np.arange(n_out) * stride - low, np.arange(n_window) * rhs_dilation
    few, many = sorted((starts, steps), key=len)
    positions = (many + start for start in few)
    return sum(int(((p >= 0) & (p <= (n_in - 1) * lhs_dilation) & (p % lhs_dilation == 0)).sum()) for p in positions)


# By primitive: the operations on real numbers, from its params and the shapes of its inputs and outputs.
FORMULAS: dict[str, Callable[[Any, Shapes, Shapes], int]] = {
    "dot_general": _dot_general,
    "ragged_dot_general": _ragged_dot_general,
    "conv_general_dilated": _convolution,
}
