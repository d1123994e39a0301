"""The gradient of a batch in parts."""

import functools

import jax
import numpy as np
import pytest

from closeness import assert_close, largest_of
from fxf.base import on_cpu
from fxf.base.devices import compiling_for
from fxf.base.random_keys import random_key
from fxf.models.encoder_decoder import EncoderDecoderConfig, encoder_decoder
from fxf.tasks.task import language_model_batch
from fxf.training.gradient import loss_and_gradient, parts_in_cache
from helpers import random_params, random_tokens, small_model

DROPOUT = {"dropout": 0.5, "attention_dropout": 0.3, "embedding_dropout": 0.2}


def batch_of(shape, seed=0):
    weights = np.random.default_rng(seed).uniform(0, 1, shape).astype(np.float32)
    return language_model_batch(random_tokens(shape), weights)


@pytest.mark.parametrize(("microbatches", "smoothing"), [(3, 0.1), pytest.param(9, 0.0, marks=pytest.mark.thorough)])
def test_microbatches_give_the_loss_and_gradient_of_the_whole_batch(microbatches, smoothing):
    (model, params), batch = small_model(), batch_of((9, 7))
    shares = np.array([[1], [0.05], [0], [0], [0], [0], [3], [0], [0.5]], np.float32)
    batch["weights"] *= shares  # of 3 parts, one counts nothing
    gradient = functools.partial(loss_and_gradient, model, label_smoothing=smoothing)
    whole = jax.jit(gradient)(params, batch)
    parts = jax.jit(functools.partial(gradient, microbatches=microbatches))(params, batch)
    assert_close(whole, parts, largest=largest_of(whole))
    assert_close(parts[1], batch["weights"].sum())


def test_rows_drop_out_as_in_the_whole_batch_whatever_the_parts():
    (model, params), batch = small_model(**DROPOUT), batch_of((6, 8))  # a part has an even number of elements
    whole, in_parts = (jax.jit(functools.partial(loss_and_gradient, model, microbatches=n)) for n in (1, 3))
    one = whole(params, batch, random_key(3))
    assert_close(one, in_parts(params, batch, random_key(3)), largest=largest_of(one))
    other = whole(params, batch, random_key(4))
    assert float(other[0]) != pytest.approx(float(one[0]), rel=1e-3)


def losses(model, **options):
    """Returns the compiled function of a batch's loss alone."""
    return jax.jit(lambda *arguments: loss_and_gradient(model, *arguments, **options)[0])


@pytest.mark.thorough
def test_equal_rows_drop_out_differently_in_different_parts():
    (model, params), row = small_model(dropout=0.5), batch_of((1, 7))
    twice = jax.tree.map(lambda x: np.repeat(x, 2, axis=0), row)
    for key in (random_key(0), jax.random.key(0)):
        loss = losses(model)(params, row, key)
        both = losses(model, microbatches=2)(params, twice, key)
        assert float(both) != pytest.approx(2 * float(loss), rel=1e-3)


def scans(model, params, batch):
    """Returns the numbers of turns of the loops in the program of a gradient that take several."""
    jaxpr = jax.make_jaxpr(functools.partial(loss_and_gradient, model))(params, batch)
    turns = [equation.params["length"] for equation in jaxpr.eqns if equation.primitive.name == "scan"]
    return [n for n in turns if n > 1]


def test_a_cpu_computes_a_large_batch_in_parts_with_the_same_loss_and_gradient(monkeypatch):
    (model, params), batch = small_model(dropout=0.5), batch_of((6, 7))
    compute = functools.partial(loss_and_gradient, model)
    whole = jax.jit(compute)(params, batch, random_key(3))
    assert scans(model, params, batch) == []
    monkeypatch.setattr(on_cpu, "IN_CACHE", 2 * 7 * model.width)
    monkeypatch.setattr(on_cpu, "SMALL", 1)
    assert scans(model, params, batch) == [3]
    parts = jax.jit(lambda *arguments: compute(*arguments))(params, batch, random_key(3))
    assert_close(whole, parts, largest=largest_of(whole))
    assert scans(model._replace(width=None), params, batch) == []  # rows that may depend on each other


@pytest.mark.thorough
def test_a_cpu_cuts_a_batch_with_sources(monkeypatch):
    config = EncoderDecoderConfig(n_layers=1, d_model=8, d_ff=6, n_heads=2, max_len=9, dropout=0.5)
    model = encoder_decoder(config, 11)
    params, rng = random_params(model.spec), np.random.default_rng(1)
    source, inputs, targets = rng.integers(3, 11, (3, 4, 5)).astype(np.int32)
    mask = np.arange(5)[None] < np.array([[5], [2], [4], [1]])
    weights = rng.uniform(size=(4, 5)).astype(np.float32)
    batch = {"source": source, "source_mask": mask, "inputs": inputs, "targets": targets, "weights": weights}
    whole = losses(model)(params, batch, random_key(3))
    monkeypatch.setattr(on_cpu, "IN_CACHE", 5 * 8)
    monkeypatch.setattr(on_cpu, "SMALL", 1)
    assert scans(model, params, batch) == [4]
    assert_close(losses(model)(params, batch, random_key(3)), whole)


def test_only_a_cpu_cuts_a_batch():
    model = small_model()[0]._replace(width=2**10)
    assert parts_in_cache(model, (8, 2**9), 1, None) == 4
    assert parts_in_cache(model, (8, 2**9), 2, None) == 1  # of each microbatch
    accelerator = type("Device", (), {"platform": "gpu"})()
    with compiling_for([accelerator]):
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
    assert n_rows % parts == 0
