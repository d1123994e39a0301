from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_dtypes import float8_e4m3fn, float8_e5m2

from closeness import assert_close
from fxf.base.devices import compiling_for, over_mesh
from fxf.layers import fp8
from fxf.layers.linear import linear


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
@pytest.mark.parametrize("shape", [(3, 4, 9, 5), (3, 4, 5, 9), (1, 3, 9, 5), (3, 4, 9, 9)])
def test_gradients_and_tangents_are_those_of_the_product_for_every_order_of_sizes(shape, platform):
    """Covers many rows or few, narrowing or widening: for some, the gradient of w is a product in another order."""
    batch, length, width, out = shape
    rng = np.random.default_rng(0)
    x, dx = rng.normal(size=(2, batch, length, width)).astype(np.float32)
    w, dw = rng.normal(size=(2, width, out)).astype(np.float32)
    dy = rng.normal(size=(batch, length, out)).astype(np.float32)

    @jax.jit
    def found():
        y, pullback = jax.vjp(linear, x, w)
        return y, *pullback(dy), jax.jvp(linear, (x, w), (dx, dw))[1]

    x2, dy2 = x.reshape(-1, width), dy.reshape(-1, out)
    expected = (x2 @ w, dy2 @ w.T, x2.T @ dy2, dx.reshape(-1, width) @ w + x2 @ dw)
    with compiling_for([SimpleNamespace(platform=platform)]):
        actual = found()
    for a, b in zip(actual, expected, strict=True):
        assert_close(np.reshape(a, b.shape), b)


def rounded(x, dtype, largest):
    """Returns x rounded to 8-bit numbers times the power of two that just covers its largest."""
    scale = 2 ** (np.floor(np.log2(np.abs(x).max() / largest)) + 1) if x.any() else 1
    return (x / scale).astype(dtype).astype(np.float64) * scale


@pytest.mark.parametrize("size", [1, 1e-20, 0])
def test_products_in_8_bits_are_those_of_arrays_rounded_at_one_scale_each(size):
    rng = np.random.default_rng(0)
    x, w, dy = (rng.normal(size=s).astype(np.float32) for s in ((3, 4, 9), (9, 5), (3, 4, 5)))
    x, dy = x * np.float32(size), dy / 1000

    @jax.jit
    def found(x, w, dy):
        with fp8.products():
            y, pullback = jax.vjp(linear, x, w)
        return y, *pullback(dy)

    actual = found(x, w, dy)
    x, w = (rounded(a, float8_e4m3fn, 448) for a in (x, w))
    dy = rounded(dy, float8_e5m2, 57344)
    for got, expected in zip(actual, (x @ w, dy @ w.T, np.einsum("bti,bto->io", x, dy)), strict=True):
        assert_close(got, expected)


def test_a_bias_is_added_in_bfloat16_and_gradients_of_it_and_of_a_matrix_are_summed_in_float32():
    n = 1001  # not a number of bfloat16, in which a sum of ones stops at 256
    x, w, bias = jnp.ones((n, 3), jnp.bfloat16), np.ones((3, 2), np.float32), np.full(2, 2**-9, np.float32)

    @over_mesh(None, in_float32=True)
    def learned(*weights):
        y, pullback = jax.vjp(lambda *weights: linear(x, *weights), *weights)
        return y, *pullback(jnp.ones_like(y))

    y, *gradients = learned(w, bias)  # uncompiled: a program for a CPU may leave out a rounding to bfloat16
    assert y.dtype == jnp.bfloat16 and [gradient.dtype for gradient in gradients] == [jnp.float32] * 2
    np.testing.assert_array_equal(y.astype(np.float32), 3.0)  # the bias is less than half an ulp
    assert all((gradient == n).all() for gradient in gradients)
