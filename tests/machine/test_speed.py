"""Predictions from products and copies whose seconds are given, as no test asserts a time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fxf.machine import costs, hlo, speed

N, M, K = 3, 5, 7


@pytest.fixture
def unit_speed(monkeypatch):
    """A machine whose products take a second, and which copies a byte a second."""
    monkeypatch.setattr(speed, "seconds_of_product", lambda product: 1.0)
    monkeypatch.setattr(speed, "seconds_of_copying", lambda n: 2 * n)


def prediction_of(function, *shapes):
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    program = jax.jit(function).lower(*shapes).compile()
    return speed.predicted(costs.cost(hlo.read(program.as_text()), n_devices=1), 100)


def test_each_turn_of_a_loop_takes_the_time_of_its_products(unit_speed):
    found = prediction_of(lambda x, y: jax.lax.fori_loop(0, 11, lambda _, x: jnp.tanh(x @ y), x), (N, M), (M, M))
    assert found.products == 11
    assert found.seconds == found.products + found.traffic


def test_what_is_no_product_takes_the_time_of_copying_its_operands_and_results(unit_speed):
    assert prediction_of(lambda x: jnp.tanh(x) + 1, (N, K)) == (0, 2 * 4 * N * K)
    assert prediction_of(jnp.matmul, (N, M), (M, K)) == (1, 0)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_a_product_is_timed_as_a_program_has_it(dtype, monkeypatch):
    timed = []
    monkeypatch.setattr(speed, "timed", lambda function, *arguments: timed.append(function(*arguments)) or 1.0)
    shapes = [jax.ShapeDtypeStruct(shape, dtype) for shape in ((2, N, M), (2, K, M))]
    program = jax.jit(lambda x, y: jnp.einsum("bij,bkj->bik", x, y)).lower(*shapes).compile()
    (product,) = costs.cost(hlo.read(program.as_text()), n_devices=1).products
    speed.seconds_of_product.__wrapped__(product)
    np.testing.assert_array_equal(np.asarray(timed[0], np.float32), np.full((2, N, K), M))
    assert speed.TYPES[product.dtype] in (dtype, jnp.float32)
