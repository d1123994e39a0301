"""The gradient of a batch in parts."""

import functools

import jax
import numpy as np
import pytest

from closeness import assert_close, largest_of
from fxf.base import on_cpu
from fxf.base.devices import compiling_for
from fxf.base.random_keys import random_key
from fxf.tasks.task import language_model_batch
from fxf.training.gradient import loss_and_gradient, parts_in_cache
from helpers import random_tokens, small_model

MODEL, PARAMS = small_model(dropout=0.5, attention_dropout=0.3)
WEIGHTS = np.random.default_rng(0).uniform(0, 1, (6, 8)).astype(np.float32)
WEIGHTS *= np.array([[1], [0.05], [0], [0], [3], [0.5]], np.float32)  # of 3 parts, one counts nothing
BATCH = language_model_batch(random_tokens((6, 8)), WEIGHTS)  # a part has an even number of elements


def compiled(model=MODEL, **options):
    return jax.jit(functools.partial(loss_and_gradient, model, label_smoothing=0.1, **options))


def scans(model, params, batch):
    """Returns the numbers of turns of the loops in the program of a gradient that take several."""
    jaxpr = jax.make_jaxpr(functools.partial(loss_and_gradient, model))(params, batch)
    turns = [equation.params["length"] for equation in jaxpr.eqns if equation.primitive.name == "scan"]
    return [n for n in turns if n > 1]


def test_microbatches_give_loss_gradient_and_dropout_of_the_whole_batch_also_those_that_a_cpu_cuts(monkeypatch):
    whole = compiled()
    one = whole(PARAMS, BATCH, random_key(3))
    assert_close(one[1], BATCH["weights"].sum())
    assert float(whole(PARAMS, BATCH, random_key(4))[0]) != pytest.approx(float(one[0]), rel=1e-3)
    assert_close(one, compiled(microbatches=3)(PARAMS, BATCH, random_key(3)), largest=largest_of(one))
    assert scans(MODEL, PARAMS, BATCH) == []
    monkeypatch.setattr(on_cpu, "IN_CACHE", 2 * 8 * MODEL.width)
    monkeypatch.setattr(on_cpu, "SMALL", 1)
    assert scans(MODEL, PARAMS, BATCH) == [3]
    assert_close(one, compiled()(PARAMS, BATCH, random_key(3)), largest=largest_of(one))
    assert scans(MODEL._replace(width=None), PARAMS, BATCH) == []  # rows that may depend on each other


@pytest.mark.thorough
def test_equal_rows_drop_out_differently_in_different_parts():
    row = jax.tree.map(lambda x: x[:1], BATCH)
    twice = jax.tree.map(lambda x: np.repeat(x, 2, axis=0), row)
    for key in (random_key(0), jax.random.key(0)):
        loss, *_ = compiled()(PARAMS, row, key)
        both, *_ = compiled(microbatches=2)(PARAMS, twice, key)
        assert float(both) != pytest.approx(2 * float(loss), rel=1e-3)


def test_only_a_cpu_cuts_a_batch():
    model = MODEL._replace(width=2**10)
    assert parts_in_cache(model, (8, 2**9), 1, None) == 4
    assert parts_in_cache(model, (8, 2**9), 2, None) == 1  # of each microbatch
    with compiling_for([type("Device", (), {"platform": "gpu"})()]):
        assert parts_in_cache(model, (8, 2**9), 1, None) == 1


@pytest.mark.parametrize(
    ("n_rows", "row_size", "parts"),
    [
        (64, 2**15, 1),
        (65, 2**15, 5),  # 13 rows; 65 / 32 is above 2, and 5 is the next divisor
        (64, 98_304, 8),  # nanoGPT's size for a GPU
        (3, 2**21, 3),  # a row is larger than a part should be
        (67, 2**15, 1),  # a prime number of rows, each too small alone
    ],
)
def test_parts_have_equal_sizes_that_fit_the_caches(n_rows, row_size, parts):
    assert on_cpu.n_parts(n_rows, row_size) == parts
