"""The gradient of a split batch; terms, metrics and moved weights in training."""

import functools
import types
from itertools import accumulate

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from terms_model import FORMS, LENGTH, ROWS, SMOOTHING, SPEC, batch, by_hand, model_of, update

from closeness import assert_close, largest_of
from fxf.base import on_cpu
from fxf.base.random_keys import random_key
from fxf.layers.named import figure
from fxf.tasks.task import language_model_batch
from fxf.training.gradient import objective_and_gradient
from fxf.training.loop import _logged
from fxf.training.record import Record, add_steps
from helpers import loss_and_gradient, random_params, random_tokens, small_model, table

MODEL, PARAMS = small_model(dropout=0.5, attention_dropout=0.3)
WEIGHTS = np.random.default_rng(0).uniform(0, 1, (6, 8)).astype(np.float32)
WEIGHTS *= np.array([[1], [0.05], [0], [0], [3], [0.5]], np.float32)  # one of 3 parts has no weight
BATCH = language_model_batch(random_tokens((6, 8)), WEIGHTS)  # a part has an even number of elements


def compiled(model=MODEL, **options):
    return jax.jit(functools.partial(loss_and_gradient, model, label_smoothing=0.1, **options))


def test_microbatches_give_loss_gradient_and_dropout_of_the_whole_batch_also_on_a_cpu(monkeypatch):
    whole = compiled()
    one = whole(PARAMS, BATCH, random_key(3))
    assert_close(one[1], BATCH["weights"].sum())
    assert float(whole(PARAMS, BATCH, random_key(4))[0]) != pytest.approx(float(one[0]), rel=1e-3)
    assert_close(one, compiled(microbatches=3)(PARAMS, BATCH, random_key(3)), largest=largest_of(one))


@pytest.mark.parametrize(("rows", "parts"), table("parts of a batch on a CPU"))
def test_parts_have_equal_sizes_that_fit_the_caches(rows, parts):
    assert on_cpu.n_parts(rows["n"], rows["size"]) == int(parts)


@functools.cache
def expected():
    return jax.device_get(jax.jit(by_hand)(random_params(SPEC), batch()))


@pytest.mark.parametrize("form", FORMS)
def test_the_gradient_is_that_of_the_sum_written_out_whatever_the_form_and_the_parts(form, monkeypatch):
    if form == "in a row":  # a CPU splits each part further
        monkeypatch.setattr(on_cpu, "IN_CACHE", 4)
        monkeypatch.setattr(on_cpu, "SMALL", 1)
    options = {"label_smoothing": SMOOTHING, "microbatches": 1 if form == "row by row" else 2}
    compute = jax.jit(functools.partial(objective_and_gradient, model_of(form), **options))
    _, weight_sum, gradient, metrics = compute(random_params(SPEC), batch())
    found = jax.tree.map(lambda g: g / weight_sum, gradient), metrics
    assert_close(found, expected(), largest=largest_of(expected()))


def test_the_mean_of_a_metric_over_parts_is_not_rounded_to_its_type():
    def features(params, batch, *, rng=None):
        figure("share", jnp.bfloat16(0.7))
        return params["table"][batch["inputs"]]

    compute = functools.partial(objective_and_gradient, model_of()._replace(features=features), microbatches=ROWS)
    assert jax.jit(compute)(random_params(SPEC), batch())[3] == {"figure/share": jnp.bfloat16(0.7)}


def test_terms_train_also_where_no_token_has_a_weight():
    given, params = {**batch(), "weights": np.zeros((ROWS, LENGTH), np.float32)}, random_params(SPEC)
    step = functools.partial(objective_and_gradient, model_of("in a row"), microbatches=2)
    _, weight_sum, gradient, metrics = jax.jit(step)(params, given)

    def sizes(scales):  # the term "square" has no weight either
        _, *streams = accumulate(scales, update, initial=params["table"][given["inputs"]])
        return sum(jnp.abs(x).mean() for x in streams), jnp.stack([x.mean((0, 1)) for x in streams])

    (size, means), of_sizes = jax.jit(jax.value_and_grad(sizes, has_aux=True))(params["scales"])
    assert weight_sum == 0
    assert_close((metrics["term/size"], gradient["scales"]), (size, of_sizes + means))


def test_means_of_a_record_are_over_the_steps_that_were_not_skipped():
    history = {"loss_sum": np.array([6.0, np.nan, 2.0]), "weight_sum": np.array([2.0, 2.0, 2.0])}
    history |= {"gradient_norm": np.array([3.0, 1.0, 5.0]), "figure/b": np.array([1.0, np.nan, 1.0])}
    written = []
    log = types.SimpleNamespace(record=lambda step, values: written.append(values), show=lambda step, values: None)
    for part in ([0, 1, 2], [1]):  # the second has no step that was taken
        record = add_steps(Record(), {name: values[part] for name, values in history.items()}, 1.0, may_skip=1)
        _logged(record, 0.1, log, {"wall": 2.0, "train": 1.0, "data": 0.0})
    row, none = written
    assert np.isnan([none[name] for name in ("loss", "gradient_norm", "figure/b")]).all()
    assert (row["loss"], row["gradient_norm"], row["figure/b"], row["steps_per_second"]) == (2.0, 4.0, 1.0, 3.0)
