import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import oracle
from closeness import assert_as_by_hand, assert_close
from configs.primer.bilayer import squared_error
from fxf.base.weights import shapes
from fxf.layers import loss as loss_module
from fxf.layers.loss import cross_entropy, mean
from fxf.models.transformer_lm import transformer_lm
from fxf.tasks.task import language_model_batch
from fxf.training.gradient import batch_loss
from helpers import equations, loss_and_gradient, random_tokens, small, small_model

N_ROWS, VOCAB_SIZE = 35, 7


def test_the_loss_of_a_batch_equals_the_oracle_and_not_the_mean_over_rows_and_is_zero_without_weight():
    model, params = small_model()

    @jax.jit
    def learn(batch):
        loss_sum, weight_sum, gradient = loss_and_gradient(model, params, batch)
        return jax.tree.map(lambda x: mean(x, weight_sum), (loss_sum, gradient))

    sequences, weights = random_tokens((5, 7)), np.random.default_rng(0).uniform(0, 2**-6, (5, 7)).astype("f4")
    weights[0] *= 0.05  # a row that hardly counts, unless rows are averaged
    omega = weights.astype(np.float64)
    loss, _ = learn(language_model_batch(sequences, weights))
    rows = zip(sequences, omega, strict=True)
    of_rows = np.array([oracle.loss(small(), oracle.float64(params), [row], [w]) for row, w in rows])
    assert_close(loss, of_rows @ omega.sum(1) / omega.sum())
    assert abs(float(loss) - np.mean(of_rows)) > 1e-2
    of_nothing = learn(language_model_batch(sequences, 0 * weights))
    assert not any(np.any(x) for x in jax.tree.leaves(jax.device_get(of_nothing)))


def random_rows():
    """Returns vectors [5, 7, 3], targets, weights (some 0), and an unembedding's matrix and bias."""
    rng = np.random.default_rng(2)  # the last weight is not 0: a copy of the last row as padding would count
    weights = rng.uniform(size=(5, 7)) * (rng.uniform(size=(5, 7)) > 0.2)
    arrays = rng.normal(size=(5, 7, 3)), weights, rng.normal(size=(3, VOCAB_SIZE)), rng.normal(size=VOCAB_SIZE)
    features, weights, kernel, bias = (x.astype(np.float32) for x in arrays)
    return features, random_tokens((5, 7), VOCAB_SIZE), weights, kernel, bias


# Two groups, the last one ragged; three, with padded logits; one for each row, which has more logits than are allowed.
@pytest.mark.parametrize(("at_once", "smoothing", "n_padding"), [(244, 0.7, 0), (100, 0.1, 4), (3, 0.0, 0)])
def test_loss_and_gradient_in_groups_are_the_smoothed_cross_entropy_of_all_rows(at_once, smoothing, n_padding):
    features, targets, weights, *readout = random_rows()
    given = np.where(weights > 0, targets, VOCAB_SIZE)  # targets without weight are not valid tokens
    kernel, bias = (np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, n_padding)]) for x in readout)
    options = {"vocab_size": VOCAB_SIZE if n_padding else None, "at_once": at_once}

    def loss(features, kernel, bias, given=given):
        return cross_entropy(lambda x: x @ kernel + bias[None], features, given, weights, smoothing, **options)

    def by_hand(features, kernel, bias):
        logits = (features.reshape(N_ROWS, 3) @ kernel + bias)[:, :VOCAB_SIZE]
        total = oracle.smoothed_cross_entropy(logits, targets.ravel(), np.float64(weights).ravel(), smoothing or 0)
        return total, np.float64(weights).sum()

    assert_as_by_hand(loss, by_hand, (features, kernel, bias))
    assert_close(jax.jit(loss)(features, kernel, bias), by_hand(*map(np.float64, (features, kernel, bias))))
    assert np.isnan(jax.jit(loss)(features, kernel, bias, np.where(weights > 0.9, VOCAB_SIZE, given))[0])


def test_narrow_types_of_targets_and_weights_overflow_nothing():
    targets, weights = np.ones((5, 7), np.uint8), np.full((5, 7), 3000, np.float16)
    sums = cross_entropy(lambda x: jnp.zeros((len(x), 256)), jnp.zeros((5, 7, 3)), targets, weights)
    assert_close(sums, (105_000 * math.log(256), 105_000.0))


def test_tied_embeddings_get_the_gradient_of_both_uses():
    _, targets, weights, kernel, _ = random_rows()
    tokens = random_tokens((5, 7), seed=1)

    def grouped(table):
        return cross_entropy(lambda x_ND: x_ND @ table.T, jnp.sin(table[tokens]), targets, weights, at_once=100)[0]

    def by_hand(table):
        logits = (np.sin(table[tokens]) @ table.T).reshape(N_ROWS, VOCAB_SIZE)
        return oracle.smoothed_cross_entropy(logits, targets.ravel(), np.float64(weights).ravel(), 0)

    assert_as_by_hand(grouped, by_hand, [kernel.T])


def test_no_program_holds_the_logits_of_a_whole_batch_over_a_large_vocabulary():
    vocab_size, shape = 50_021, (11, 13)
    model = transformer_lm(small(), vocab_size)
    batch = {name: jax.ShapeDtypeStruct(shape, np.int32) for name in ("inputs", "targets")}
    batch["weights"] = jax.ShapeDtypeStruct(shape, np.float32)
    most = loss_module.LOGITS_AT_ONCE + vocab_size
    assert most < 11 * 13 * vocab_size / 3
    for program in (batch_loss, loss_and_gradient):
        jaxpr = jax.make_jaxpr(functools.partial(program, model))(shapes(model.spec), batch).jaxpr
        made = (variable.aval.shape for equation in equations(jaxpr) for variable in equation.outvars)
        assert vocab_size < max(map(math.prod, made)) <= most


@pytest.mark.parametrize("tokens", [False, True])
def test_the_squared_error_is_the_weighted_sum_of_squared_distances_of_targets_with_weight(tokens):
    features, indices, weights, kernel, _ = random_rows()
    vectors = np.eye(VOCAB_SIZE)[indices] if tokens else np.random.default_rng(1).normal(size=(5, 7, VOCAB_SIZE))
    targets = indices if tokens else np.where(weights[..., None] > 0, vectors, np.nan).astype(np.float32)
    assert_as_by_hand(
        lambda x: squared_error(lambda x: x @ kernel, x, targets, weights)[0],
        lambda x: (weights[..., None] * (x @ kernel - vectors) ** 2).sum(),
        [features],
    )
