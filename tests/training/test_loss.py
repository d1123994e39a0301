import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
from fxf.tasks.task import language_model_batch
from fxf.training.loss import cross_entropy, mean
from fxf.training.step import loss_and_gradient
from helpers import random_tokens, small_model

MODEL, PARAMS = small_model()
loss_of = jax.jit(lambda batch: loss_and_gradient(MODEL, PARAMS, batch))


def batch_of(sequences, weights):
    return language_model_batch(sequences, weights.astype(np.float32))


def random_weights(shape, seed=0):
    return np.random.default_rng(seed).uniform(0, 1, shape).astype(np.float32)


@pytest.mark.parametrize("form", ["definition", "idea"])
def test_the_loss_of_a_batch_equals_the_oracle(form):
    model, params = small_model(block=form)
    sequences, weights = random_tokens((5, 7)), random_weights((5, 7))
    loss_sum, weight_sum, _ = loss_and_gradient(model, params, batch_of(sequences, weights))
    expected = oracle.loss(oracle.float64(params), sequences, weights.astype(np.float64), form)
    assert float(mean(loss_sum, weight_sum)) == pytest.approx(expected, abs=1e-6)


def test_the_loss_is_not_the_mean_over_rows():
    sequences, weights = random_tokens((5, 7)), random_weights((5, 7))
    weights[0] *= 0.05  # a row that hardly counts, unless each row counted alike
    loss_sum, weight_sum, _ = loss_of(batch_of(sequences, weights))
    weights64 = weights.astype(np.float64)
    by_rows = oracle.mean_over_rows(oracle.float64(PARAMS), sequences, weights64)
    assert abs(float(mean(loss_sum, weight_sum)) - by_rows) > 1e-2
    equal = np.ones((5, 7))
    assert oracle.loss(oracle.float64(PARAMS), sequences, equal) == pytest.approx(
        oracle.mean_over_rows(oracle.float64(PARAMS), sequences, equal)
    )


@given(cut=st.integers(1, 2), seed=st.integers(0, 99))
def test_sums_over_parts_of_a_batch_add_up_to_the_whole(cut, seed):
    sequences, weights = random_tokens((5, 7), seed=seed), random_weights((5, 7), seed)
    weights[seed % 5] = 0
    whole = loss_of(batch_of(sequences, weights))
    parts = [loss_of(batch_of(sequences[rows], weights[rows])) for rows in (slice(None, cut), slice(cut, None))]
    summed = jax.tree.map(lambda a, b: a + b, *parts)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), whole, summed)


def test_a_batch_without_weight_gives_zero_loss_and_zero_gradient():
    loss_sum, weight_sum, gradient = loss_of(batch_of(random_tokens((5, 7)), np.zeros((5, 7))))
    assert mean(loss_sum, weight_sum) == 0
    assert all((mean(g, weight_sum) == 0).all() for g in jax.tree.leaves(gradient))


def test_the_first_token_is_predicted_from_token_zero_alone():
    logits = np.log(np.array([[[0.25, 0.75], [0.5, 0.5]]], np.float32))
    loss_sum, weight_sum = cross_entropy(logits, np.array([[1, 0]]), np.array([[1.0, 0.0]]))
    assert (float(loss_sum), float(weight_sum)) == (pytest.approx(-np.log(0.75)), 1.0)
    batch = batch_of(np.array([[5, 6, 4]]), np.ones((1, 3)))
    np.testing.assert_array_equal(batch["inputs"], [[0, 5, 6]])
