"""Norms on a GPU have one kernel per pass, with the same results; here Pallas interprets the kernels on a CPU."""

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.extend.core import jaxpr_as_fun

from closeness import assert_close, largest_of
from fxf.base.devices import compiling_for, over_mesh
from fxf.layers import norm_kernel
from fxf.layers.named import edited
from fxf.layers.normalization import beside, normalize
from helpers import equations, marked, one_device, random_tokens, small_model
from norms import assert_as_the_formula, setting

GPU = SimpleNamespace(platform="gpu")


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    """Lets this CPU run the kernels with few rows: tiles of two or more, by three programs with several tiles each."""
    monkeypatch.setattr(pl, "pallas_call", functools.partial(pl.pallas_call, interpret=True))
    for name, value in (("FEWEST_ROWS", 6), ("AT_ONCE", 16), ("PROGRAMS", 6)):
        monkeypatch.setattr(norm_kernel, name, value)


@pytest.mark.parametrize("case", marked("kernels of norms"))
def test_a_norm_and_its_gradients_are_those_of_the_formula_with_that_of_the_stream_added(case):
    shape, dtype, meshed, *_ = case.values()
    changes = {key: value for key, value in case.items() if key not in ("shape", "dtype", "meshed")}
    with compiling_for([GPU]), over_mesh(one_device().mesh if meshed else None):
        config, params, (x, *_) = setting(shape, dtype, **changes)
        assert "custom_vjp_call" in str(jax.make_jaxpr(lambda x: normalize(config, params, x))(x))
        assert_as_the_formula(shape, dtype, **changes)


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


@pytest.mark.parametrize("shape", [(3, 1, 5), (5, 5), (1, 5, 3), (7, 2**15), (3, 7, 5)])
def test_single_tokens_few_rows_the_widest_vectors_and_a_cpus_are_left_to_xla(shape):
    config, params, (x, *_) = setting(shape)
    with compiling_for([SimpleNamespace(platform="cpu") if shape == (3, 7, 5) else GPU]):
        traced = jax.make_jaxpr(lambda x: normalize(config, params, x))(x)
    assert not any(e.primitive.name == "pallas_call" for e in equations(traced.jaxpr))


@pytest.mark.thorough
def test_a_model_with_kernels_learns_as_on_a_cpu_also_where_arrays_are_replaced():
    def learning():
        """Returns params, and a function of a new model, because JAX caches traces for other devices."""
        model, params = small_model(n_layers=2, norm_epsilon_in="variance", remat="full", scan_blocks=True)
        halved = edited(model.features, {"residual": lambda x, i: jnp.where(i == 0, x / 2, x)})
        return params, jax.value_and_grad(lambda p: jnp.sin(halved(p, {"inputs": random_tokens((3, 7))})[0]).sum())

    params, learn = learning()
    expected = jax.jit(learn)(params)
    with compiling_for([GPU]):
        traced = jax.make_jaxpr(learning()[1])(params)
    n_kernels = sum(e.primitive.name == "pallas_call" for e in equations(traced.jaxpr))
    assert n_kernels == 2 * 3  # a block's two norms: forward, recomputed, and backward
    found = jax.jit(jaxpr_as_fun(traced))(*jax.tree.leaves(params))
    assert_close(found, jax.tree.leaves(expected), largest=largest_of(expected))
