"""A norm on a GPU as one kernel of Pallas (Triton) each way, which also sums both gradients of the residual stream.

XLA reads the vectors for their mean, again for their deviation, and again for the result; for the gradient it reads
them and what comes back twice more. The kernels read each array once (a GPT-2 step on one H100: 4 % of its time, by the
sum over kernels). The sums over rows are in a fixed order, so that a step has the same bits each time.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jax.sharding import PartitionSpec as P

from fxf.base.devices import ROWS, SEQUENCE, target_devices, target_mesh
from fxf.layers.linear import as_float32

# Wider vectors do not fit into the registers of a program, and fewer rows don't take long.
WIDEST, FEWEST_ROWS = 2**13, 2**10
# A program of 128 threads has so many elements of each array at once; one of more, 16 for each thread. The backward
# pass has the programs that fit at once on the 132 processors of an H100, so many of the smallest.
AT_ONCE, PROGRAMS = 2**11, 132 * 4

Weights = tuple[jax.Array, ...]
BY_TOKEN = P(ROWS, SEQUENCE)  # of arrays [R, T, D]


class Kind(NamedTuple):
    """A norm, and what it is computed for.

    Attributes:
      centered: whether the vectors are less their mean.
      passes: whether the norm also returns the vectors, so that it gets and adds their gradient.
      copies: whether these are a copy where the norm keeps the vectors for its gradient. A product that is added to a
        copy is added in place, and XLA would make that copy in a pass of its own.
      mesh: the devices that shard the vectors; None if there is one.
    """

    epsilon: float
    centered: bool
    passes: bool
    copies: bool
    mesh: Any


def fits(x: jax.Array) -> bool:
    """Returns whether a kernel helps vectors of this shape, and each device can compute those that it has.

    One token in a row is a step of decoding, whose norms XLA joins with their neighbors.
    """
    if x.ndim == 1 or x.size // x.shape[-1] < FEWEST_ROWS or x.shape[-1] > WIDEST or x.dtype == jnp.float64:
        return False
    mesh = target_mesh()
    if mesh is None:  # the head of a model does not know the mesh, and has vectors without rows of tokens
        return x.shape[-2] > 1 and (x.ndim > 2 or len(target_devices()) == 1)
    n_rows = math.prod(mesh.shape[axis] for axis in ROWS)
    return x.ndim == 3 and x.shape[1] > 1 and x.shape[0] % n_rows == x.shape[1] % mesh.shape[SEQUENCE] == 0


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def norm(kind: Kind, x: jax.Array, weights: Weights) -> Any:
    """Returns the normalized vectors of x [R, T, D], after x itself if the norm passes it.

    They are computed in float32, and are in the type of x.

    Args:
      weights: scale, or scale and bias, each [D].
    """
    (y,) = _mapped(kind, _forward, BY_TOKEN, (x,), weights)
    return (x, y) if kind.passes else y


def _norm_forward(kind: Kind, x: jax.Array, weights: Weights) -> tuple[Any, Any]:
    def outputs(x: jax.Array, weights: Weights) -> Any:
        *copy, y = _mapped(kind, functools.partial(_forward, copies=kind.copies), BY_TOKEN, (x,), weights)
        return (*(copy or [x]), y) if kind.passes else y

    return _with_formula(outputs, functools.partial(_formula, kind))(x, weights), (x, weights)


def _norm_backward(kind: Kind, kept: Any, changes: Any) -> tuple[jax.Array, Weights]:
    def gradients(x: jax.Array, weights: Weights, changes: Any) -> tuple[jax.Array, Weights]:
        arrays, specs = (x, *jax.tree.leaves(changes)), (BY_TOKEN, P((*ROWS, SEQUENCE)))
        dx, sums = _mapped(kind, _backward, specs, arrays, weights)
        return dx, tuple(total.astype(w.dtype) for total, w in zip(sums.sum(0), weights, strict=True))

    def of_formula(x: jax.Array, weights: Weights, changes: Any) -> tuple[jax.Array, Weights]:
        return jax.vjp(functools.partial(_formula, kind), x, weights)[1](changes)

    return _with_formula(gradients, of_formula)(*kept, changes)


norm.defvjp(_norm_forward, _norm_backward)


def _with_formula(function: Callable[..., Any], formula: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function, whose derivatives (the second ones of a norm) XLA computes of the formula."""
    function = jax.custom_jvp(function)
    function.defjvp(lambda primals, tangents: jax.jvp(formula, primals, tangents))
    return function


def _formula(kind: Kind, x: jax.Array, weights: Weights) -> Any:
    standard, _ = _standard(kind, as_float32(x), x.shape[-1])
    y = _affine(standard, [jnp.expand_dims(w, range(x.ndim - 1)) for w in weights]).astype(x.dtype)
    return (x, y) if kind.passes else y


def _mapped(kind: Kind, function: Callable[..., Any], specs: Any, arrays: Weights, weights: Weights) -> Any:
    """Returns the function of arrays [R, T, D], of which each device has its own rows, and of whole weights."""
    function = functools.partial(function, kind)
    if kind.mesh is not None:
        in_specs = (BY_TOKEN, P())
        function = jax.shard_map(function, mesh=kind.mesh, in_specs=in_specs, out_specs=specs, check_vma=False)
    return function(arrays, weights)


def _forward(kind: Kind, arrays: Weights, weights: Weights, copies: bool = False) -> Weights:
    """Returns the normalized vectors, after a copy of the others if `copies`."""
    (x,) = arrays
    n, width = math.prod(x.shape[:-1]), x.shape[-1]

    def norm(x_ref: Any, *refs: Any) -> None:
        weight_refs, y_refs = refs[: len(weights)], refs[len(weights) :]
        tile = _Tile(n, width, pl.program_id(0))
        rows = tile.load(x_ref)
        standard, _ = _standard(kind, rows, width, tile.inside)
        normalized = _affine(standard, [tile.vector(ref) for ref in weight_refs])
        for ref, written in zip(y_refs[::-1], (normalized, rows), strict=False):
            tile.store(ref, written)

    shapes = [jax.ShapeDtypeStruct((n, width), x.dtype)] * (1 + copies)
    return tuple(y.reshape(x.shape) for y in _call(norm, pl.cdiv(n, _height(width)), shapes, arrays, weights))


def _backward(kind: Kind, arrays: Weights, weights: Weights) -> tuple[jax.Array, jax.Array]:
    """Returns the gradient of x for (x, gradients of the outputs), and those of the weights, a part of each program."""
    n, width = math.prod(arrays[0].shape[:-1]), arrays[0].shape[-1]
    n_tiles = pl.cdiv(n, _height(width))
    programs = min(max(1, PROGRAMS // _parts(width)), n_tiles)

    def norm_gradient(*refs: Any) -> None:
        x_ref, *of_x_refs, dy_ref = refs[: len(arrays)]
        scale_ref, dx_ref, sums_ref = refs[len(arrays)], *refs[-2:]
        here = pl.program_id(0)

        def turn(i: Any, sums: list[jax.Array]) -> list[jax.Array]:
            tile = _Tile(n, width, here + i * programs)
            dy = tile.load(dy_ref)
            standard, inverse = _standard(kind, tile.load(x_ref), width, tile.inside)
            change = dy * tile.vector(scale_ref)
            dx = change - standard * _mean(change * standard, width)
            dx = (dx - _mean(change, width) if kind.centered else dx) * inverse
            tile.store(dx_ref, sum((tile.load(ref) for ref in of_x_refs), dx))
            return [a + b for a, b in zip(sums, (dy * standard, dy), strict=False)]

        first = _Tile(n, width, here)
        zeros = [jnp.zeros(first.inside.shape, jnp.float32)] * len(weights)
        for i, total in enumerate(jax.lax.fori_loop(0, pl.cdiv(n_tiles, programs), turn, zeros)):
            triton.store(sums_ref.at[here, i, first.columns], total.sum(0), mask=first.columns < width)

    shapes = [((n, width), arrays[0].dtype), ((programs, len(weights), width), jnp.float32)]
    dx, sums = _call(norm_gradient, programs, [jax.ShapeDtypeStruct(*shape) for shape in shapes], arrays, weights)
    return dx.reshape(arrays[0].shape), sums


def _call(kernel: Callable[..., None], programs: int, shapes: Any, arrays: Weights, weights: Weights) -> Any:
    width = arrays[0].shape[-1]
    parameters = triton.CompilerParams(num_warps=4 * _parts(width), num_stages=1)
    # Without products; the compiled program says so by the metadata.
    cost = pl.CostEstimate(flops=0, transcendentals=arrays[0].size // width, bytes_accessed=0)
    options: Any = {"compiler_params": parameters, "cost_estimate": cost, "metadata": {"flops": "0"}}
    call = pl.pallas_call(kernel, grid=(programs,), out_shape=shapes, **options)
    return call(*(x.reshape(-1, width) for x in arrays), *weights)


def _height(width: int) -> int:
    """Returns how many rows a program has at once."""
    return max(1, AT_ONCE // pl.next_power_of_2(width))


def _parts(width: int) -> int:
    """Returns how many times larger than the smallest programs those for this width are."""
    return max(1, pl.next_power_of_2(width) // AT_ONCE)


class _Tile:
    """Some rows of arrays [N, D] inside a program, [height, columns], whose columns are a power of two."""

    def __init__(self, n: int, width: int, number: Any) -> None:
        height = _height(width)
        rows = number * height + jnp.arange(height)
        self.columns = jnp.arange(pl.next_power_of_2(width))
        self.at = rows[:, None], self.columns[None]
        self.inside = (self.at[0] < n) & (self.at[1] < width)
        self.width = width

    def load(self, ref: Any) -> jax.Array:
        return triton.load(ref.at[self.at], mask=self.inside, other=0.0).astype(jnp.float32)

    def store(self, ref: Any, x: jax.Array) -> None:
        triton.store(ref.at[self.at], x.astype(ref.dtype), mask=self.inside)

    def vector(self, ref: Any) -> jax.Array:
        return triton.load(ref.at[self.columns], mask=self.columns < self.width, other=0.0).astype(jnp.float32)[None]


def _standard(kind: Kind, x: jax.Array, width: int, inside: Any = True) -> tuple[jax.Array, jax.Array]:
    """Returns vectors, less their mean if the norm is centered, over their deviation, and 1 over that."""
    if kind.centered:
        x = jnp.where(inside, x - _mean(x, width), 0)
    inverse = jax.lax.rsqrt(_mean(x * x, width) + kind.epsilon)
    return x * inverse, inverse


def _mean(x: jax.Array, width: int) -> jax.Array:
    """Returns the mean of vectors of this width, which zeros may fill up."""
    return (x.sum(-1) / width)[..., None]


def _affine(standard: jax.Array, weights: Sequence[jax.Array]) -> jax.Array:
    scale, *bias = weights
    return sum(bias, standard * scale)
