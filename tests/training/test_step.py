import functools

import jax
import numpy as np
import optax
import pytest

from fxf.config import OptimizerConfig
from fxf.tasks.reversal import ReversalConfig, reversal
from fxf.training.optimizer import make_optimizer
from fxf.training.step import init_state, loss_and_gradient, make_train_steps, run_keys, train_step
from helpers import small_model

TASK = reversal(ReversalConfig(n_tokens=4, min_length=1, max_length=3), 5)


def setting(**changes):
    model, _ = small_model(vocab_size=TASK.vocab_size, n_layers=1, **changes)
    return model, make_optimizer(OptimizerConfig(clip_norm=1.0, warmup_steps=2), 20, model.spec)


@functools.cache
def train(n_calls, dropout=0.0, seed=0):
    """Returns the state and the loss of each step, after the given numbers of steps a call."""
    model, optimizer = setting(dropout=dropout)
    state = jax.jit(lambda: init_state(model, optimizer, jax.random.key(0)))()
    steps = make_train_steps(model, optimizer, TASK.batch, seed, most=7)
    losses = []
    for n in n_calls:
        state, metrics = steps(state, n)
        losses += [np.asarray(metrics["loss_sum"])[:n]]
    return jax.tree.map(np.asarray, state), np.concatenate(losses)


def assert_same_bits(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_calls_of_any_size_take_the_same_steps_to_the_bit():
    whole, parts, single = train((7,)), train((3, 4)), train((1,) * 7)
    assert_same_bits(whole, parts)
    assert_same_bits(whole, single)
    assert whole[0].step == 7


def test_dropout_differs_from_step_to_step_and_repeats_from_run_to_run():
    with_dropout = train((7,), dropout=0.5)
    assert_same_bits(with_dropout, train((3, 4), dropout=0.5))
    assert not np.array_equal(with_dropout[1], train((7,))[1])


def test_the_seed_chooses_the_data():
    assert not np.array_equal(train((7,))[1], train((7,), seed=1)[1])


def test_a_call_takes_the_steps_that_single_steps_take():
    model, optimizer = setting()
    state = jax.jit(lambda: init_state(model, optimizer, jax.random.key(0)))()
    _, data_key, _ = run_keys(0)
    step = jax.jit(lambda s, b: train_step(model, optimizer, s, b, None))
    for i in range(7):
        state, _ = step(state, TASK.batch(jax.random.fold_in(data_key, i), i))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), state, train((7,))[0])


def test_a_step_divides_by_the_weight_of_the_whole_batch():
    model, _ = setting()
    optimizer = optax.sgd(1.0)
    state = jax.jit(lambda: init_state(model, optimizer, jax.random.key(0)))()
    batch = TASK.batch(jax.random.key(1), 0)
    _, weight_sum, gradient = jax.jit(functools.partial(loss_and_gradient, model))(state.params, batch)
    moved, metrics = jax.jit(lambda s, b: train_step(model, optimizer, s, b, None))(state, batch)
    expected = jax.tree.map(lambda p, g: p - g / weight_sum, state.params, gradient)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), moved.params, expected)
    norm = float(optax.tree.norm(gradient) / weight_sum)
    assert float(metrics["gradient_norm"]) == pytest.approx(norm, rel=1e-5)
