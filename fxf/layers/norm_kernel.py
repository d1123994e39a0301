"""A norm on a GPU as one kernel of Pallas (Triton) each way, which also sums both gradients of the residual stream.

XLA reads the vectors for their mean, again for their deviation, and again for the result; for the gradient it reads
them and what comes back twice more. The kernels read each array once (a GPT-2 step on one H100: 5 % of its time, by the
sum over kernels). The sums over rows are in a fixed order, so that a step has the same bits each time.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jax.sharding import PartitionSpec as P

from fxf.base.devices import ROWS, SEQUENCE, divides, target_devices, target_mesh
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
    if mesh is None:
        return x.shape[-2] > 1 and len(target_devices()) == 1
    return x.ndim == 3 and x.shape[1] > 1 and divides(mesh, ROWS, x.shape[0]) and divides(mesh, (SEQUENCE,), x.shape[1])


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def norm(kind: Kind, x: jax.Array, weights: Weights) -> Any:
    """Returns the normalized vectors of x [R, T, D], after x itself if the norm passes it.

    They are computed in float32, and are in the type of x.

    Args:
      weights: scale, or scale and bias, each [D].
    """
    return _outputs(kind._replace(copies=False), x, weights)


def _norm_forward(kind: Kind, x: jax.Array, weights: Weights) -> tuple[Any, Any]:
    return _with_formula(kind, _outputs, _formula)(x, weights), (x, weights)


def _norm_backward(kind: Kind, kept: Any, changes: Any) -> tuple[jax.Array, Weights]:
    return _with_formula(kind, _gradients, _formula_gradients)(*kept, changes)


norm.defvjp(_norm_forward, _norm_backward)


def _with_formula(kind: Kind, function: Callable[..., Any], formula: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function of arrays, whose derivatives (the second ones of a norm) XLA computes of the formula."""
    function, formula = jax.custom_jvp(functools.partial(function, kind)), functools.partial(formula, kind)
    function.defjvp(lambda primals, tangents: jax.jvp(formula, primals, tangents))
    return function


def _outputs(kind: Kind, x: jax.Array, weights: Weights) -> Any:
    found = _mapped(kind, _forward, BY_TOKEN, (x,), weights)
    return (x, *found)[-2:] if kind.passes else found[0]


def _formula(kind: Kind, x: jax.Array, weights: Weights) -> Any:
    y = _affine(_standard(kind, as_float32(x))[0], [jnp.expand_dims(w, range(x.ndim - 1)) for w in weights])
    return (x, y.astype(x.dtype)) if kind.passes else y.astype(x.dtype)


def _gradients(kind: Kind, x: jax.Array, weights: Weights, changes: Any) -> tuple[jax.Array, Weights]:
    specs = BY_TOKEN, P((*ROWS, SEQUENCE))
    dx, sums = _mapped(kind, _backward, specs, (x, *jax.tree.leaves(changes)), weights)
    return dx, tuple(total.astype(w.dtype) for total, w in zip(sums.sum(0), weights, strict=True))


def _formula_gradients(kind: Kind, x: jax.Array, weights: Weights, changes: Any) -> tuple[jax.Array, Weights]:
    return jax.vjp(functools.partial(_formula, kind), x, weights)[1](changes)


def _mapped(kind: Kind, function: Callable[..., Any], specs: Any, arrays: Weights, weights: Weights) -> Any:
    """Returns the function of arrays [R, T, D] as [N, D], of which each device has its own, and of whole weights."""

    def of_device(arrays: Weights, weights: Weights) -> Weights:
        found = function(kind, [x.reshape(-1, x.shape[-1]) for x in arrays], weights)
        return tuple(y.reshape(arrays[0].shape) if y.ndim == 2 else y for y in found)

    if kind.mesh is not None:
        specs = {"in_specs": (BY_TOKEN, P()), "out_specs": specs}
        of_device = jax.shard_map(of_device, mesh=kind.mesh, check_vma=False, **specs)
    return of_device(arrays, weights)


def _forward(kind: Kind, arrays: Sequence[jax.Array], weights: Weights) -> Any:
    """Returns the normalized vectors [N, D], after a copy of the others if the norm copies them."""
    (x,) = arrays

    def norm(x_ref: Any, *refs: Any) -> None:
        tile = _Tile(x, pl.program_id(0))
        rows = tile.load(x_ref)
        standard, _ = _standard(kind, rows, x.shape[1], tile.inside)
        y = _affine(standard, [tile.vector(ref) for ref in refs[: len(weights)]])
        for ref, written in zip(refs[: len(weights) - 1 : -1], (y, rows), strict=False):
            tile.store(ref, written)

    return _call(norm, _sizes(x)[2], [x] * (1 + kind.copies), arrays, weights)


def _backward(kind: Kind, arrays: Sequence[jax.Array], weights: Weights) -> Any:
    """Returns the gradient of x for (x, gradients of the outputs), and those of the weights, a part of each program."""
    width, (_, parts, n_tiles) = arrays[0].shape[1], _sizes(arrays[0])
    programs = min(max(1, PROGRAMS // parts), n_tiles)

    def norm_gradient(*refs: Any) -> None:
        x_ref, *of_x_refs, dy_ref = refs[: len(arrays)]
        scale_ref, dx_ref, sums_ref = refs[len(arrays)], *refs[-2:]
        here = pl.program_id(0)
        first = _Tile(arrays[0], here)

        def turn(i: Any, sums: list[jax.Array]) -> list[jax.Array]:
            tile = _Tile(arrays[0], here + i * programs)
            dy = tile.load(dy_ref)
            standard, inverse = _standard(kind, tile.load(x_ref), width, tile.inside)
            change = dy * tile.vector(scale_ref)
            dx = change - standard * _mean(change * standard, width)
            dx = (dx - _mean(change, width) if kind.centered else dx) * inverse
            tile.store(dx_ref, sum((tile.load(ref) for ref in of_x_refs), dx))
            return [a + b for a, b in zip(sums, (dy * standard, dy), strict=False)]

        zeros = [jnp.zeros(first.inside.shape, jnp.float32)] * len(weights)
        for i, total in enumerate(jax.lax.fori_loop(0, pl.cdiv(n_tiles, programs), turn, zeros)):
            triton.store(sums_ref.at[here, i, first.columns], total.sum(0), mask=first.columns < width)

    sums = jax.ShapeDtypeStruct((programs, len(weights), width), jnp.float32)
    return _call(norm_gradient, programs, [arrays[0], sums], arrays, weights)


def _call(kernel: Any, programs: int, shapes: Any, arrays: Sequence[jax.Array], weights: Weights) -> Any:
    parameters = triton.CompilerParams(num_warps=4 * _sizes(arrays[0])[1], num_stages=1)
    # It has no products; the compiled program says so by the metadata.
    cost = pl.CostEstimate(flops=0, transcendentals=len(arrays[0]), bytes_accessed=0)
    options: Any = {"compiler_params": parameters, "cost_estimate": cost, "metadata": {"flops": "0"}}
    return pl.pallas_call(kernel, grid=(programs,), out_shape=shapes, **options)(*arrays, *weights)


def _sizes(x: jax.Array) -> tuple[int, int, int]:
    """Returns how many rows [N, D] a program has at once, how many smallest programs it is, and the number of tiles."""
    columns = pl.next_power_of_2(x.shape[1])
    height = max(1, AT_ONCE // columns)
    return height, max(1, columns // AT_ONCE), pl.cdiv(len(x), height)


class _Tile:
    """Rows of arrays [N, D] that a program has at once, [height, columns], whose columns are a power of two."""

    def __init__(self, x: jax.Array, number: Any) -> None:
        (n, self.width), (height, *_) = x.shape, _sizes(x)
        self.columns = jnp.arange(pl.next_power_of_2(self.width))
        self.at = (number * height + jnp.arange(height))[:, None], self.columns[None]
        self.inside = (self.at[0] < n) & (self.at[1] < self.width)

    def load(self, ref: Any) -> jax.Array:
        return triton.load(ref.at[self.at], mask=self.inside, other=0.0).astype(jnp.float32)

    def store(self, ref: Any, x: jax.Array) -> None:
        triton.store(ref.at[self.at], x.astype(ref.dtype), mask=self.inside)

    def vector(self, ref: Any) -> jax.Array:
        return triton.load(ref.at[self.columns], mask=self.columns < self.width, other=0.0).astype(jnp.float32)[None]


def _standard(kind: Kind, x: jax.Array, width: int = 0, inside: Any = True) -> tuple[jax.Array, jax.Array]:
    """Returns vectors, less their mean if the norm is centered, over their deviation, and 1 over that.

    Args:
      width: their width, if zeros fill them up where they are not `inside`.
    """
    width = width or x.shape[-1]
    if kind.centered:
        x = jnp.where(inside, x - _mean(x, width), 0)
    inverse = jax.lax.rsqrt(_mean(x * x, width) + kind.epsilon)
    return x * inverse, inverse


def _mean(x: jax.Array, width: int) -> jax.Array:
    return (x.sum(-1) / width)[..., None]


def _affine(standard: jax.Array, weights: Sequence[jax.Array]) -> jax.Array:
    scale, *bias = weights
    return sum(bias, standard * scale)
