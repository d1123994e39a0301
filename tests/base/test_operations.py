"""The operations of traced programs, counted by hand."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.sharding import AxisType, PartitionSpec

from fxf.base.devices import compiling_for
from fxf.base.on_gpu import product_of_experts
from fxf.base.operations import Operations, operations


def conv(x_NWC, w_WIO, **options):
    numbers = ("NWC", "WIO", "NWC")
    return lax.conv_general_dilated(x_NWC, w_WIO, **{"window_strides": (1,), **options}, dimension_numbers=numbers)


def halves(x, a, b):
    return lax.cond(x[0, 0] > 0, lambda: (a @ b @ b.T).sum(), lambda: (a @ b).sum())


@jax.custom_vjp
def own(a, b):
    return a @ b


own.defvjp(lambda a, b: (a @ b, (a, b)), lambda saved, g: (g @ saved[1].T, saved[0].T @ g))


@jax.custom_jvp
def tangent(a, b):
    return a @ b


tangent.defjvp(lambda primals, tangents: (tangent(*primals), tangents[0] @ primals[1]))


def multiply(a_ref, b_ref, out_ref):
    out_ref[...] = a_ref[...] @ b_ref[...]


def kernel(a, b, **options):
    """A product [8, 5] x [5, 6] by blocks of 4 rows and 2 columns."""
    return pl.pallas_call(
        multiply,
        grid=(2, 3),
        in_specs=[pl.BlockSpec((4, 5), lambda i, j: (i, 0)), pl.BlockSpec((5, 2), lambda i, j: (0, j))],
        out_specs=pl.BlockSpec((4, 2), lambda i, j: (i, j)),
        out_shape=jax.ShapeDtypeStruct((8, 6), jnp.float32),
        **options,
    )(a, b)


def on_each_device(x):
    mesh = jax.sharding.AbstractMesh((3, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
    specs = {"in_specs": (PartitionSpec("a"), PartitionSpec()), "out_specs": PartitionSpec("a"), "axis_names": {"a"}}
    return jax.shard_map(lambda x, w: x @ w, mesh=mesh, **specs)(x, x.T)


SIZES = jax.ShapeDtypeStruct((2,), np.int32)
PRODUCT = 2 * 3 * 5 * 7
GPU = compiling_for([SimpleNamespace(platform="gpu")])


def gradients(product):
    return jax.grad(lambda a, b, n: product(a, b, n).sum(), (0, 1))


def until_large(a, b):
    return lax.while_loop(lambda x: x.sum() < 1, lambda x: x @ b @ b.T, a)


TWO = [(3, 5), (5, 7)]


@pytest.mark.parametrize(
    ("function", "shapes", "flops", "uncounted"),
    [
        (jax.jit(jnp.matmul), TWO, PRODUCT, {}),
        (own, TWO, PRODUCT, {}),
        (tangent, TWO, PRODUCT, {}),
        (jax.grad(lambda a, b: own(a, b).sum()), TWO, 3 * PRODUCT, {}),
        (jax.vmap(jnp.matmul), [(4, 3, 5), (4, 5, 7)], 4 * PRODUCT, {}),
        (lambda a, b: a.astype(complex) @ b, TWO, 4 * PRODUCT, {}),  # four for real numbers
        (lambda a, b: lax.scan(lambda x, _: (x @ b @ b.T, None), a, length=11)[0], TWO, 11 * 2 * PRODUCT, {}),
        (halves, [(1, 1), *TWO], 2 * PRODUCT, {}),
        (lambda x: lax.associative_scan(jnp.matmul, x), [(4, 3, 3)], 4 * 2 * 3**3, {}),  # 1 and 2, 3 and 4, then 2 more
        # Each row is in one of the two groups, also if a GPU pads an expert's blocks.
        (lax.ragged_dot, [(6, 3), (2, 3, 5), SIZES], 2 * 6 * 3 * 5, {}),
        (gradients(lax.ragged_dot), [(6, 3), (2, 3, 5), SIZES], 3 * 2 * 6 * 3 * 5, {}),
        (GPU(gradients(product_of_experts)), [(600, 3), (2, 3, 5), SIZES], 3 * 2 * 600 * 3 * 5, {}),
        (lambda x, w: conv(x, w, padding=[(2, 0)], feature_group_count=6), [(4, 9, 6), (3, 1, 6)], 2 * 4 * 24 * 6, {}),
        (lambda x, w: conv(x, w, padding=[(1, 0)], window_strides=(2,)), [(4, 9, 6), (3, 6, 8)], 2 * 4 * 11 * 48, {}),
        (lambda x, w: conv(x, w, padding="SAME", batch_group_count=2), [(4, 9, 6), (3, 6, 8)], 2 * 2 * 25 * 6 * 8, {}),
        (lambda x, w: conv(x, w, padding="VALID", rhs_dilation=(4,)), [(4, 9, 6), (3, 6, 8)], 2 * 4 * 1 * 3 * 48, {}),
        (lambda x, w: conv(x, w, padding=[(0, 0)], lhs_dilation=(2,)), [(4, 3, 6), (2, 6, 8)], 2 * 4 * 4 * 48, {}),
        (kernel, [(8, 5), (5, 6)], 2 * 8 * 5 * 6, {}),
        (lambda a, b: kernel(a, b, cost_estimate=pl.CostEstimate(99, 0, 0)), [(8, 5), (5, 6)], 99, {}),
        (on_each_device, [(6, 5)], 2 * 6 * 5 * 6, {}),
        (lambda x: jnp.cumsum(jax.nn.gelu(x) * x), [(3, 5)], 0, {}),  # single elements
        (lambda x: lax.while_loop(lambda s: s.sum() < 1, lambda s: 2 * s, x), [(3, 5)], 0, {}),
        (until_large, TWO, 2 * PRODUCT, {"iterations of a while loop"}),
        (lambda a: jnp.linalg.eigh(a @ a.T), [(3, 5)], 2 * 3 * 5 * 3, {"eigh"}),
        (jnp.linalg.solve, [(6, 6), (6, 5)], 0, {"lu", "triangular_solve"}),
        (lambda a: jax.pure_callback(np.sin, a, a), [(3, 5)], 0, {"pure_callback"}),
        (lambda a: jax.ffi.ffi_call("mine", jax.ShapeDtypeStruct((3,), np.float32))(a), [(3, 5)], 0, {"ffi_call"}),
        (lambda a: lax.scan(lambda x, _: (jnp.linalg.svd(x @ x)[0] * x, None), a, length=3)[0], [(3, 3)], 162, {"svd"}),
    ],
)
def test_operations_are_those_counted_by_hand_and_uncounted_ones_are_named(function, shapes, flops, uncounted):
    inputs = [x if hasattr(x, "dtype") else jax.ShapeDtypeStruct(x, np.float32) for x in shapes]
    assert operations(jax.make_jaxpr(function)(*inputs).jaxpr) == Operations(flops, frozenset(uncounted))
