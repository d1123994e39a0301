"""Norms on a GPU: one Pallas (Triton) kernel for each pass. The backward one also adds the residual stream's gradient.

XLA reads the vectors for their mean, again for their deviation, and again for the result; for the gradient it reads
them and the incoming gradient twice more. The kernels read each array once (a GPT-2 step on one H100: 5 % of its time,
by the sum over kernels). The sums over rows are in a fixed order, so that a step has the same bits each time.
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

# Wider vectors do not fit a program's registers. With fewer rows a kernel saves little.
WIDEST, FEWEST_ROWS = 2**13, 2**10
# Elements of each array that a program of 128 threads holds at once; a larger program holds 16 for each thread. The
# backward pass has as many of the smallest programs as run at once on the 132 processors of an H100.
AT_ONCE, PROGRAMS = 2**11, 132 * 4

Weights = tuple[jax.Array, ...]
BY_TOKEN = P(ROWS, SEQUENCE)  # of arrays [R, T, D]


class Kind(NamedTuple):
    """A norm, and what it is computed for.

    Attributes:
      centered: whether the mean is subtracted.
      passes: whether the norm also returns the vectors, so that it gets and adds their gradient.
      copies: whether the returned vectors are a copy where the norm keeps the vectors for its gradient. A product can
        be added to a copy in place; XLA would make that copy in a pass of its own.
      mesh: the devices that shard the vectors; None for one device.
    """

    epsilon: float
    centered: bool
    passes: bool
    copies: bool
    mesh: Any


def fits(x: jax.Array) -> bool:
    """Returns whether a kernel helps vectors of this shape, and each device can compute its own.

    Rows of one token are a decoding step, where XLA fuses norms with their neighbors.
    """
    if x.ndim == 1 or x.size // x.shape[-1] < FEWEST_ROWS or x.shape[-1] > WIDEST or x.dtype == jnp.float64:
        return False
    mesh = target_mesh()
    if mesh is None:
        return x.shape[-2] > 1 and len(target_devices()) == 1
    return x.ndim == 3 and x.shape[1] > 1 and divides(mesh, ROWS, x.shape[0]) and divides(mesh, (SEQUENCE,), x.shape[1])


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def norm(kind: Kind, x: jax.Array, weights: Weights) -> Any:
    """Returns x [R, T, D] normalized, after x itself if `kind.passes`.

    It computes in float32, and returns the type of x.

    Args:
      weights: scale, or scale and bias, each [D].
    """
    return _outputs(kind._replace(copies=False), x, weights)


def _norm_forward(kind: Kind, x: jax.Array, weights: Weights) -> tuple[Any, Any]:
    return _with_formula(kind, _outputs, _formula)(x, weights), (x, weights)


def _norm_backward(kind: Kind, residuals: Any, cotangents: Any) -> tuple[jax.Array, Weights]:
    return _with_formula(kind, _gradients, _formula_gradients)(*residuals, cotangents)


norm.defvjp(_norm_forward, _norm_backward)


def _with_formula(kind: Kind, function: Callable[..., Any], formula: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `function`, with the derivatives of `formula` by XLA, for second derivatives of a norm."""
    function, formula = jax.custom_jvp(functools.partial(function, kind)), functools.partial(formula, kind)
    function.defjvp(lambda primals, tangents: jax.jvp(formula, primals, tangents))
    return function


def _outputs(kind: Kind, x: jax.Array, weights: Weights) -> Any:
    outputs = _mapped(kind, _forward, BY_TOKEN, (x,), weights)
    return (x, *outputs)[-2:] if kind.passes else outputs[0]


def _formula(kind: Kind, x: jax.Array, weights: Weights) -> Any:
    y = _affine(_standard(kind, as_float32(x))[0], [jnp.expand_dims(w, range(x.ndim - 1)) for w in weights])
    return (x, y.astype(x.dtype)) if kind.passes else y.astype(x.dtype)


def _gradients(kind: Kind, x: jax.Array, weights: Weights, cotangents: Any) -> tuple[jax.Array, Weights]:
    specs = BY_TOKEN, P((*ROWS, SEQUENCE))
    dx, sums = _mapped(kind, _backward, specs, (x, *jax.tree.leaves(cotangents)), weights)
    return dx, tuple(total.astype(w.dtype) for total, w in zip(sums.sum(0), weights, strict=True))


def _formula_gradients(kind: Kind, x: jax.Array, weights: Weights, cotangents: Any) -> tuple[jax.Array, Weights]:
    return jax.vjp(functools.partial(_formula, kind), x, weights)[1](cotangents)


def _mapped(kind: Kind, function: Callable[..., Any], specs: Any, arrays: Weights, weights: Weights) -> Any:
    """Returns `function` of arrays [R, T, D], reshaped to [N, D] and sharded over devices, and of whole weights."""

    def local(arrays: Weights, weights: Weights) -> Weights:
        outputs = function(kind, [x.reshape(-1, x.shape[-1]) for x in arrays], weights)
        return tuple(y.reshape(arrays[0].shape) if y.ndim == 2 else y for y in outputs)

    if kind.mesh is not None:
        specs = {"in_specs": (BY_TOKEN, P()), "out_specs": specs}
        local = jax.shard_map(local, mesh=kind.mesh, check_vma=False, **specs)
    return local(arrays, weights)


def _forward(kind: Kind, arrays: Sequence[jax.Array], weights: Weights) -> Any:
    """Returns the normalized vectors [N, D], after a copy of x if `kind.copies`."""
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
    """Returns the gradients of x, and of the weights as one part per program, from x and the outputs' gradients."""
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
    # It has no matrix products; the compiled program says so by the metadata.
    cost = pl.CostEstimate(flops=0, transcendentals=len(arrays[0]), bytes_accessed=0)
    options: Any = {"compiler_params": parameters, "cost_estimate": cost, "metadata": {"flops": "0"}}
    return pl.pallas_call(kernel, grid=(programs,), out_shape=shapes, **options)(*arrays, *weights)


def _sizes(x: jax.Array) -> tuple[int, int, int]:
    """Returns the rows of a tile of [N, D], the size of a program in smallest programs, and the number of tiles."""
    columns = pl.next_power_of_2(x.shape[1])
    height = max(1, AT_ONCE // columns)
    return height, max(1, columns // AT_ONCE), pl.cdiv(len(x), height)


class _Tile:
    """The rows of arrays [N, D] that a program holds at once, [height, columns]; `columns` is a power of two."""

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
    """Returns vectors, minus their mean if the norm is centered, over their deviation; and 1 over the deviation.

    Args:
      width: the width of the vectors without their padding of zeros, which is not `inside`; 0: no padding.
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
