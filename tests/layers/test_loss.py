import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
from closeness import assert_close, largest_of
from configs.primer.bilayer import squared_error
from fxf.base.weights import shapes
from fxf.layers import loss as loss_module
from fxf.layers.loss import cross_entropy, mean
from fxf.models.transformer_lm import transformer_lm
from fxf.tasks.task import language_model_batch
from fxf.training.gradient import batch_loss, loss_and_gradient
from helpers import equations, random_tokens, small, small_model

MODEL, PARAMS = small_model()
learn = jax.jit(lambda batch, smoothing: loss_and_gradient(MODEL, PARAMS, batch, label_smoothing=smoothing))


def loss_of(batch, smoothing=0.0):
    """Returns loss, weight and gradient; nearly all batches here have one shape, so that this compiles once."""
    return learn(batch, smoothing)


def batch_of(sequences, weights):
    return language_model_batch(sequences, weights.astype(np.float32))


def random_weights(shape, seed=0):
    return np.random.default_rng(seed).uniform(0, 1, shape).astype(np.float32)


def test_the_loss_of_a_batch_equals_the_oracle_and_is_not_the_mean_over_rows():
    sequences, weights = random_tokens((9, 7)), random_weights((9, 7))
    weights[0] *= 0.05  # a row that hardly counts, unless each row counted alike
    loss_sum, weight_sum, _ = loss_of(batch_of(sequences, weights))
    weights64, found = weights.astype(np.float64), mean(loss_sum, weight_sum)
    assert_close(found, oracle.loss(small(), oracle.float64(PARAMS), sequences, weights64))
    by_rows = oracle.mean_over_rows(small(), oracle.float64(PARAMS), sequences, weights64)
    assert abs(float(found) - by_rows) > 1e-2
    equal = np.ones((9, 7))
    assert oracle.loss(small(), oracle.float64(PARAMS), sequences, equal) == pytest.approx(
        oracle.mean_over_rows(small(), oracle.float64(PARAMS), sequences, equal)
    )


def alone(rows, sequences, weights):
    """Returns the batch of some rows, repeated without weight up to the shape of all."""
    places = np.flatnonzero(rows)
    filled = np.resize(places, len(rows))
    return batch_of(sequences[filled], weights[filled] * (np.arange(len(rows)) < len(places))[:, None])


@given(seed=st.integers(0, 99))
def test_sums_over_parts_of_a_batch_add_up_to_the_whole(seed):
    sequences, weights = random_tokens((9, 7), seed=seed), random_weights((9, 7), seed)
    weights[seed % 9] = 0
    whole = loss_of(batch_of(sequences, weights))
    rows = np.arange(9) < 4
    parts = [loss_of(alone(rows, sequences, weights)) for rows in (rows, ~rows)]
    summed = jax.tree.map(np.add, *jax.device_get(parts))
    assert_close(whole, summed, largest=largest_of(whole))


def test_a_batch_without_weight_gives_zero_loss_and_zero_gradient():
    loss_sum, weight_sum, gradient = loss_of(batch_of(random_tokens((9, 7)), np.zeros((9, 7))))
    means = jax.jit(lambda sums: jax.tree.map(lambda x: mean(x, weight_sum), sums))((loss_sum, gradient))
    assert all((np.asarray(g) == 0).all() for g in jax.tree.leaves(means))


def test_the_first_token_is_predicted_from_token_zero_alone():
    logits = np.log(np.array([[[0.25, 0.75], [0.5, 0.5]]], np.float32))
    loss = jax.jit(functools.partial(cross_entropy, lambda x: x))
    loss_sum, weight_sum = loss(logits, np.array([[1, 0]]), np.array([[1.0, 0.0]], np.float32))
    assert_close(loss_sum, -np.log(0.75), largest=np.log(4))
    assert weight_sum == 1
    batch = batch_of(np.array([[5, 6, 4]]), np.ones((1, 3)))
    np.testing.assert_array_equal(batch["inputs"], [[0, 5, 6]])


def random_rows(n_features=3, vocab_size=7, seed=0):
    """Returns features [5, 7, D], targets and weights, of which some are 0, and a matrix and a bias to read out by."""
    rng = np.random.default_rng(seed)
    features, kernel = rng.normal(size=(5, 7, n_features)), rng.normal(size=(n_features, vocab_size))
    weights = random_weights((5, 7)) * (rng.uniform(size=(5, 7)) > 0.2)
    arrays = (features, weights, {"kernel": kernel, "bias": rng.normal(size=vocab_size)})
    features, weights, readout = jax.tree.map(lambda x: x.astype(np.float32), arrays)
    return features, random_tokens((5, 7), vocab_size), weights, readout


def read_out(readout, x_ND):
    return x_ND @ readout["kernel"] + readout["bias"][None]


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
def test_label_smoothing_is_the_cross_entropy_with_a_share_of_each_target_spread_over_the_vocabulary(smoothing):
    features, targets, weights, readout = random_rows()
    rows = oracle.float64({"x": features.reshape(-1, 3), "w": weights.reshape(-1), **readout})
    logits = rows["x"] @ rows["kernel"] + rows["bias"]
    expected = oracle.smoothed_cross_entropy(logits, targets.reshape(-1), rows["w"], smoothing)
    loss = functools.partial(cross_entropy, functools.partial(read_out, readout))
    loss_sum, weight_sum = jax.jit(loss)(features, targets, weights, smoothing)
    assert_close(loss_sum, expected)
    assert_close(weight_sum, rows["w"].sum())


def plain_cross_entropy(logits, targets, weights, smoothing):
    """The loss as written down, over all logits at once."""
    log_probabilities = jax.nn.log_softmax(logits)
    wanted = (1 - smoothing) * jax.nn.one_hot(targets, logits.shape[-1]) + smoothing / logits.shape[-1]
    return -jnp.sum(weights[..., None] * wanted * log_probabilities)


# Of 35 rows of 7 logits: one group, two and three with a ragged last one, a row each, and fewer logits than a row has.
AT_ONCE = [245, 244, 100, 3]


@pytest.mark.parametrize(("at_once", "smoothing"), [(n, 0.1) for n in AT_ONCE])
def test_the_loss_in_groups_equals_the_plain_one_and_so_does_its_gradient(at_once, smoothing):
    features, targets, weights, readout = random_rows()

    def grouped(features, readout):
        read = functools.partial(read_out, readout)
        return cross_entropy(read, features, targets, weights, smoothing, at_once=at_once)[0]

    def plain(features, readout):
        logits = features @ readout["kernel"] + readout["bias"][None, None]
        return plain_cross_entropy(logits, targets, weights, smoothing)

    @jax.jit
    def found(features, readout):
        # Twice the logarithm, so that what the gradient is multiplied by on its way back is not 1.
        both = [
            jax.value_and_grad(lambda *args, f=f: 2 * jnp.log(f(*args)), (0, 1))(features, readout)
            for f in (grouped, plain)
        ]
        return both, grouped(features, readout)

    (actual, expected), value = jax.device_get(found(features, readout))
    assert_close(actual, expected, largest=largest_of(expected))
    assert_close(value, np.exp(np.float64(expected[0]) / 2))


def test_logits_that_are_padding_change_neither_loss_nor_gradient():
    features, targets, weights, readout = random_rows()
    padded = {"kernel": np.pad(readout["kernel"], ((0, 0), (0, 4))), "bias": np.pad(readout["bias"], (0, 4))}

    def loss(features, readout, **options):
        return cross_entropy(functools.partial(read_out, readout), features, targets, weights, 0.1, **options)[0]

    @jax.jit
    def learned(features, readout, padded):
        def of_padded(at_once):
            return jax.value_and_grad(functools.partial(loss, vocab_size=7, at_once=at_once), (0, 1))(features, padded)

        return jax.value_and_grad(loss, (0, 1))(features, readout), [of_padded(n) for n in (1000, 100)]

    expected, of_padded = jax.device_get(learned(features, readout, padded))
    for value, (of_features, of_readout) in of_padded:
        found = value, (of_features, jax.tree.map(lambda g: g[..., :7], of_readout))
        assert_close(found, expected, largest=largest_of(expected))
        assert all((g[..., 7:] == 0).all() for g in of_readout.values())


def test_a_table_that_is_read_and_read_out_gets_the_gradient_of_both():
    _, targets, weights, readout = random_rows()
    tokens, table = random_tokens((5, 7), seed=1), readout["kernel"].T

    def grouped(at_once, table):
        return cross_entropy(lambda x_ND: x_ND @ table.T, jnp.sin(table[tokens]), targets, weights, at_once=at_once)[0]

    def plain(table):
        return plain_cross_entropy(jnp.sin(table[tokens]) @ table.T, targets, weights, 0.0)

    losses = (plain, *(functools.partial(grouped, n) for n in (245, 100)))
    expected, *found = jax.device_get(jax.jit(lambda table: [jax.value_and_grad(f)(table) for f in losses])(table))
    for actual in found:
        assert_close(actual, expected, largest=largest_of(expected))


def array_shapes(jaxpr):
    """Yields the shape of every array that a program makes, in its loops and calls too."""
    for equation in equations(jaxpr):
        yield from (variable.aval.shape for variable in equation.outvars)


def test_no_program_holds_the_logits_of_a_whole_batch_over_a_large_vocabulary():
    vocab_size, shape = 50_021, (11, 13)
    model = transformer_lm(small(), vocab_size)
    batch = {name: jax.ShapeDtypeStruct(shape, np.int32) for name in ("inputs", "targets")}
    batch["weights"] = jax.ShapeDtypeStruct(shape, np.float32)
    most = loss_module.LOGITS_AT_ONCE + vocab_size
    assert most < 11 * 13 * vocab_size / 3
    for program in (batch_loss, loss_and_gradient):
        jaxpr = jax.make_jaxpr(functools.partial(program, model))(shapes(model.spec), batch).jaxpr
        assert vocab_size < max(map(math.prod, array_shapes(jaxpr))) <= most


def test_a_target_without_weight_may_be_no_number():
    outputs, weights = np.ones((2, 3, 1), np.float32), np.array([[1, 0, 1], [0, 0, 0]], np.float32)
    targets = np.where(weights[..., None], 3, np.float32(np.nan))
    value, gradient = jax.value_and_grad(lambda x: squared_error(lambda y: y, x, targets, weights)[0])(outputs)
    assert value == 8
    np.testing.assert_array_equal(gradient, -4 * weights[..., None])


@pytest.mark.parametrize("tokens", [False, True])
def test_the_squared_error_is_the_weighted_sum_of_squared_distances(tokens):
    rng = np.random.default_rng(0)
    features, kernel = rng.normal(size=(3, 5, 7)).astype(np.float32), rng.normal(size=(7, 4)).astype(np.float32)
    targets = rng.integers(0, 4, (3, 5)) if tokens else rng.normal(size=(3, 5, 4)).astype(np.float32)
    weights = rng.uniform(size=(3, 5)).astype(np.float32) * (rng.uniform(size=(3, 5)) < 0.7)
    loss = jax.jit(functools.partial(squared_error, lambda x: x @ kernel))
    loss_sum, weight_sum = loss(features, targets.astype(np.int32 if tokens else np.float32), weights)
    vectors = np.eye(4)[targets] if tokens else targets
    expected = sum(
        weights[b, t] * (features[b, t] @ kernel - vectors[b, t]) @ (features[b, t] @ kernel - vectors[b, t])
        for b in range(3)
        for t in range(5)
    )
    assert_close(loss_sum, expected)
    assert_close(weight_sum, weights.sum())
