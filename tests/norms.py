"""Norms against their formula in float64."""

import jax
import jax.numpy as jnp
import numpy as np

from closeness import assert_close, largest_of
from fxf.layers.normalization import beside, normalize
from helpers import small


def setting(shape, dtype="float32", **changes):
    """Returns a norm's config and params, and vectors with the cotangents of N x and of x."""
    config = small(norm_epsilon_in="variance", norm_epsilon=0.1, d_model=shape[-1], n_heads=1, **changes)
    rng = np.random.default_rng(0)
    params = {
        name: rng.normal(size=shape[-1:]).astype("f4") for name in ("scale", "bias")[: 1 + (config.norm == "layer")]
    }
    return config, params, [jnp.asarray(rng.normal(size=shape) * 2 + 1, dtype) for _ in range(3)]


def by_formula(config, params, x, dy, dx):
    """Returns N x and the gradients of x, scale and bias, in float64."""
    x, dy, dx = (np.asarray(a, np.float64) for a in (x, dy, dx))
    factor = np.asarray(params["scale"], np.float64) + config.zero_centered_scale
    mean = (lambda a: a.mean(-1, keepdims=True)) if config.norm == "layer" else lambda a: 0 * a[..., :1]
    deviation = np.sqrt(np.square(x - mean(x)).mean(-1, keepdims=True) + config.norm_epsilon)
    standard, change = (x - mean(x)) / deviation, dy * factor
    dx = dx + (change - mean(change) - standard * (standard * change).mean(-1, keepdims=True)) / deviation
    sums = [a.reshape(-1, x.shape[-1]).sum(0) for a in (dy * standard, dy)]
    return standard * factor + params.get("bias", 0), dx, *sums[: len(params)]


def assert_as_the_formula(shape, dtype, **changes):
    """Asserts that a norm, alone and with its input, and its gradients equal the formula, with the same bits twice."""
    config, params, (x, dy, dx) = setting(shape, dtype, **changes)

    @jax.jit
    def both(params, x):
        alone, back = jax.vjp(lambda params, x: normalize(config, params, x), params, x)
        joined, back_both = jax.vjp(lambda params, x: beside(config, params, x), params, x)
        return (alone, *back(dy)), (*joined, *back_both((dx, dy)))

    (alone, *gradients), (passed, joined, *of_both) = found = both(params, x)
    jax.tree.map(np.testing.assert_array_equal, both(params, x), found)
    np.testing.assert_array_equal(passed, x)
    np.testing.assert_array_equal(alone, joined)
    for (of_params, of_x), added in ((gradients, 0 * dx), (of_both, dx)):
        expected = by_formula(config, params, x, dy, added)
        assert of_x.dtype == alone.dtype == x.dtype
        found = alone, of_x, *(of_params[name] for name in params)
        if dtype == "bfloat16":  # outputs per token are rounded once
            for a, b in zip(found[:2], expected[:2], strict=True):
                np.testing.assert_allclose(np.asarray(a, np.float64), b, rtol=2**-8, atol=1e-5)
            found, expected = found[2:], expected[2:]
        assert_close(found, expected, largest=largest_of(expected))
