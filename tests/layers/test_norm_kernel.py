"""Norms on a GPU are one kernel each way, with the same numbers; here Pallas interprets the kernels on a CPU."""

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.extend.core import jaxpr_as_fun

from closeness import assert_close, largest_of
from fxf.base.devices import compiling_for, over_mesh
from fxf.layers import norm_kernel
from fxf.layers.named import edited
from fxf.layers.normalization import beside, normalize
from fxf.training.gradient import loss_and_gradient
from helpers import equations, one_device, random_tokens, small, small_model

GPU = SimpleNamespace(platform="gpu")


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    """Lets this CPU run the kernels: of few rows, in tiles of two rows or more, by three programs with several each."""
    monkeypatch.setattr(pl, "pallas_call", functools.partial(pl.pallas_call, interpret=True))
    for name, value in (("FEWEST_ROWS", 6), ("AT_ONCE", 16), ("PROGRAMS", 6)):
        monkeypatch.setattr(norm_kernel, name, value)


def setting(shape, dtype="float32", **changes):
    """Returns the config of a norm, its params, and vectors with the changes of N x and of x."""
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


@pytest.mark.parametrize(
    ("shape", "dtype", "changes", "meshed"),
    [
        ((3, 7, 5), "float32", {"norm": "layer"}, True),
        ((1, 31, 8), "float32", {"norm": "rms", "zero_centered_scale": True}, False),
        ((5, 3, 17), "bfloat16", {"norm": "layer", "zero_centered_scale": True}, False),
        ((2, 3, 1), "float32", {"norm": "rms"}, True),
    ],
)
def test_a_norm_and_its_gradients_are_those_of_the_formula_with_that_of_the_stream_added(shape, dtype, changes, meshed):
    config, params, (x, dy, dx) = setting(shape, dtype, **changes)

    @jax.jit
    def both(params, x):
        alone, back = jax.vjp(lambda params, x: normalize(config, params, x), params, x)
        joined, back_both = jax.vjp(lambda params, x: beside(config, params, x), params, x)
        return alone, joined, back(dy), back_both((dx, dy))

    mesh = one_device().mesh if meshed else None
    with compiling_for([GPU]), over_mesh(mesh):
        assert "custom_vjp_call" in str(jax.make_jaxpr(lambda x: normalize(config, params, x))(x))
        alone, (passed, joined), *gradients = both(params, x)
    np.testing.assert_array_equal(passed, x)
    np.testing.assert_array_equal(alone, joined)
    for (of_params, of_x), added in zip(gradients, (0 * dx, dx), strict=True):
        expected = by_formula(config, params, x, dy, added)
        assert of_x.dtype == alone.dtype == x.dtype
        found = alone, of_x, *(of_params[name] for name in params)
        if dtype == "bfloat16":  # what is written for each token is rounded once
            for a, b in zip(found[:2], expected[:2], strict=True):
                np.testing.assert_allclose(np.asarray(a, np.float64), b, rtol=2**-8, atol=1e-5)
            found, expected = found[2:], expected[2:]
        assert_close(found, expected, largest=largest_of(expected))


def test_second_derivatives_are_those_of_a_cpu():
    config, params, (x, dy, dx) = setting((2, 5, 3), norm="layer")

    def slope(x):
        gradient = jax.grad(
            lambda x: sum((a * b).sum() for a, b in zip(beside(config, params, x), (dx, dy), strict=True))
        )
        return jax.jvp(gradient, (x,), (dy,))[1], jax.grad(lambda x: (gradient(x) * dy).sum())(x)

    expected = jax.jit(slope)(x)
    with compiling_for([GPU]):
        found = jax.jit(lambda x: slope(x))(x)
    assert_close(found, expected, largest=largest_of(expected))


@pytest.mark.parametrize("shape", [(3, 1, 5), (5, 5), (1, 5, 3), (7, 2**15)])
def test_single_tokens_few_rows_and_the_widest_vectors_are_left_to_xla(shape):
    config, params, (x, *_) = setting(shape)
    with compiling_for([GPU]):
        traced = jax.make_jaxpr(lambda x: normalize(config, params, x))(x)
    assert not any(e.primitive.name == "pallas_call" for e in equations(traced.jaxpr))


def test_a_model_with_kernels_learns_as_on_a_cpu_and_its_arrays_can_be_replaced():
    model, params = small_model(norm_epsilon_in="variance", remat="full", scan_blocks=True)
    tokens = {
        "inputs": random_tokens((3, 7)),
        "targets": random_tokens((3, 7), seed=1),
        "weights": np.ones((3, 7), "f4"),
    }

    def half(x, i):
        return jnp.where(i == 1, x / 2, x)

    def learn(params):
        whole = loss_and_gradient(model, params, tokens)
        return whole, edited(model.features, {"residual": half}, read="residual")(params, tokens)

    expected = jax.jit(learn)(params)
    with compiling_for([GPU]):
        traced = jax.make_jaxpr(lambda params: learn(params))(params)
    assert any(e.primitive.name == "pallas_call" for e in equations(traced.jaxpr))
    found = jax.jit(jaxpr_as_fun(traced))(*jax.tree.leaves(params))
    assert_close(found, jax.tree.leaves(expected), largest=largest_of(expected))
