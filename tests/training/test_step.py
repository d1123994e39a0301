import dataclasses
import functools
import itertools
import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from closeness import assert_close, largest_of
from fxf.base.weights import Weight, map_weights
from fxf.layers.dropout import dropout
from fxf.layers.linear import as_float32, linear, linear_spec
from fxf.models.model import Model
from fxf.tasks.reversal import Reversal, ReversalConfig
from fxf.tasks.task import RunInfo
from fxf.training import step as steps
from fxf.training.copies import are_only_cast, copies_of
from fxf.training.optimizer import OPTIMIZERS, OptimizerConfig, RegisteredOptimizer, make_optimizer, make_schedule
from fxf.training.state import TrainState, hyperparameters, run_keys
from helpers import loss_and_gradient, one_device, random_params, small_model

TRAIN = steps.TrainConfig(batch_size=6)
# Adam divides gradients by their size, so it makes a full step of one that is only rounding.
SGD = OptimizerConfig(name="sgd", learning_rate=0.1, momentum=0.9, clip_norm=1.0, warmup_steps=2)
TASK = Reversal(ReversalConfig(n_tokens=4, min_length=1, max_length=3), RunInfo(train=TRAIN))
WIDTH = 6
SPEC = {
    "table": Weight((TASK.vocab_size, WIDTH), ("vocabulary", "embed"), None),
    "kernel": Weight((WIDTH, WIDTH), ("embed", "mlp"), None),
    "counts": Weight((50,), ("embed",), None, by="gradient"),
    "final": linear_spec({"mlp": WIDTH, "vocabulary": TASK.vocab_size}),
}


make_batch = jax.jit(TASK.batch)
KEY = jax.random.key(1)


def model_of(dtype="bfloat16", rate=0.5):
    """Returns a model that compiles quickly; any will do for a step. One in bfloat16 has weights with copies."""

    def features(params, batch, *, rng=None):
        x_BTD = dropout(rng, params["table"][batch["inputs"]].astype(dtype), rate)
        return jnp.tanh(linear(x_BTD, params["kernel"]))

    def readout(params, x):
        return as_float32(linear(x, params["final"]["kernel"], params["final"]["bias"]))

    return Model(SPEC, features, readout, dtype=dtype, width=WIDTH)


MODEL, IN_FLOAT32 = model_of(), model_of("float32", 0.0)


def make_trainer(model=MODEL, optimizer=make_optimizer(SGD, 20, SPEC), **config):
    return steps.Trainer(model, optimizer, dataclasses.replace(TRAIN, **config), one_device())


def start(trainer=None):
    """Returns a trainer's state of step 0 in host memory, without compiling a program."""
    params = jax.device_get(random_params(SPEC))
    shapes = jax.eval_shape((trainer or make_trainer()).optimizer.init, params)
    return TrainState(np.int32(0), params, jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes))


def through(n_calls, train_steps, seed=0, rate=SGD.learning_rate):
    """Returns the state, the loss of each step, and the metrics, after calls with these numbers of steps."""
    state, losses = jax.device_put(start(), one_device().replicated), []
    numbers = hyperparameters(seed, TRAIN, dataclasses.replace(SGD, learning_rate=rate))
    for n in n_calls:
        state, metrics = train_steps(state, numbers, n)
        losses += [np.asarray(metrics["loss_sum"])[:n]]
    return jax.tree.map(np.asarray, state), np.concatenate(losses)


ON_DEVICE = steps.make_train_steps(make_trainer(), TASK.batch, max_steps=7)


@functools.cache
def train(n_calls, seed=0):
    return through(n_calls, ON_DEVICE, seed)


def test_calls_of_any_size_take_the_same_steps_to_the_bit():
    """Weights have copies, which each call casts again."""
    whole = train((7,))
    assert whole[0].step == 7
    for calls in ((3, 4), (1,) * 7):
        jax.tree.map(np.testing.assert_array_equal, whole, train(calls))
    assert not np.array_equal(whole[1], train((7,), seed=1)[1])


def test_weights_have_a_copy_except_those_that_training_reads_in_float32():
    model, params = small_model(dtype="bfloat16", attention_bias="all", qk_norm=True, scan_blocks=True, remat="full")
    batch, layout = jax.eval_shape(make_batch, KEY, 0), one_device()
    names = jax.tree.leaves(map_weights(lambda name, _: name, model.spec))
    for use in (jax.checkpoint(lambda p: p), lambda p: p.astype("float16")):  # a program of nothing else; another cast

        def scaled(p, batch, rng, use=use):
            return model.features(p, batch) * (1 if rng is None else use(p["final"]["bias"])[0])

        only_cast = are_only_cast(model._replace(features=scaled), params, batch, KEY, layout)
        copies = jax.eval_shape(lambda p, of=only_cast: copies_of(model, p, of, layout), params)
        assert only_cast == [copy is not None for copy in copies]
        assert only_cast == [not re.search("norm|_scale|embedding|final/bias", name) for name in names]
    assert not any(are_only_cast(small_model()[0], params, batch, KEY, layout))


def test_a_step_divides_by_the_weight_of_the_whole_batch_smooths_splits_adds_the_penalty_and_counts_exactly():
    def penalty(params, step):
        return (step + 2) * params["final"]["bias"].sum() - jnp.arange(50) @ params["counts"]

    model = IN_FLOAT32._replace(penalty=penalty, to_plain=lambda params: jax.tree.map(jnp.negative, params))
    trainer = make_trainer(model, optax.sgd(1.0), label_smoothing=0.3, microbatches=3)
    state, batch, numbers = start(trainer), make_batch(KEY, 0), hyperparameters(0, trainer.config)
    batch["weights"] *= 5  # 95 times 1 / 95, rounded, is not 1
    step = jax.jit(functools.partial(steps.train_step, trainer))
    moved, metrics = step(state, batch, numbers)
    whole = jax.jit(lambda smoothing, *given: loss_and_gradient(model, *given, label_smoothing=smoothing))
    loss_sum, weight_sum, gradient = jax.device_get(whole(0.3, state.params, batch))
    gradient = jax.tree.map(lambda g: g / weight_sum, gradient)
    gradient["final"]["bias"] -= 2  # the penalty reads the plain bias, which is the negative one
    assert_close(metrics["loss_sum"], loss_sum)
    assert abs(float(loss_sum - whole(0.0, state.params, batch)[0])) > 1e-3
    expected = jax.tree.map(lambda p, g: p - g, state.params, gradient)
    np.testing.assert_array_equal(moved.params.pop("counts"), expected.pop("counts") - np.arange(50, dtype=np.float32))
    assert_close(moved.params, expected, largest=largest_of(expected))
    assert_close(metrics["gradient_norm"], np.sqrt(sum(np.square(g).sum() for g in jax.tree.leaves(gradient))))
    without_weight, _ = step(state, {**batch, "weights": np.zeros_like(batch["weights"])}, numbers)
    assert_close(without_weight.params["final"]["bias"], state.params["final"]["bias"] + 2)


def test_an_optimizer_may_read_the_loss_a_random_key_and_the_gradient_at_other_params(monkeypatch):
    """In bfloat16 the loss at the state's params reads copies, and the loss at other params must not."""

    def update(gradient, state, params, *, value, grad_fn, key, **known):
        far, near = (grad_fn(optax.tree.scale(scale, params)) for scale in (2, 0.1))  # one is clipped
        rate = value * params["final"]["bias"].max() * jax.random.uniform(key)
        return optax.tree.scale(-rate, optax.tree.add(far, near)), state

    optimizer = optax.GradientTransformationExtraArgs(lambda params: (), update)
    monkeypatch.setitem(OPTIMIZERS, "reading", RegisteredOptimizer(lambda rate, spec: optimizer, unit_steps=True))
    kernel, final = dataclasses.replace(SPEC["kernel"], rate=0.25), SPEC["final"]
    bias = dataclasses.replace(final["bias"], rate=0.1, by="sign")  # the optimizer sees its new values
    spec = {**SPEC, "kernel": kernel, "final": {**final, "bias": bias}}
    config = OptimizerConfig(name="reading", clip_norm=1.0, frozen="table")
    trainer = make_trainer(model_of(rate=0.0)._replace(spec=spec, penalty=lambda p, _: jnp.square(p["kernel"]).sum()))
    trainer = trainer._replace(optimizer=make_optimizer(config, 20, spec))
    state, numbers = start(trainer), hyperparameters(0, TRAIN, config)
    gradient = jax.jit(lambda params: loss_and_gradient(trainer.model, params, host_batch(0))[2])
    moved, metrics = steps.make_train_steps(trainer, TASK.batch, 1)(state, numbers, 1)
    loss, n, before = metrics["loss_sum"][0], metrics["weight_sum"][0], state.params
    first = gradient(before)
    norm = optax.tree.norm([first["table"], first["kernel"] + 2 * n * before["kernel"], first["final"]["kernel"]])
    assert_close(metrics["gradient_norm"][0], norm / n, operations=20)
    bias = before["final"]["bias"] - 0.1 * np.sign(first["final"]["bias"])
    rate = loss / n * bias.max() * jax.random.uniform(jax.random.fold_in(run_keys(0).dropout, 2**32 - 1))  # step ~0
    expected = {**before, "final": {**before["final"], "bias": bias}}
    for scale in (2, 0.1):
        final = {**before["final"], "kernel": scale * before["final"]["kernel"]}
        other = gradient({**before, "kernel": scale * before["kernel"], "final": final})
        kernel, final = other["kernel"] / n + 2 * scale * before["kernel"], other["final"]["kernel"] / n
        share = rate / max(1, np.sqrt((kernel**2).sum() + (final**2).sum()))
        expected["kernel"] = expected["kernel"] - 0.25 * share * kernel
        expected["final"]["kernel"] = expected["final"]["kernel"] - share * final
    assert_close(moved.params, expected, largest=largest_of(expected))


def host_batch(step):
    return jax.device_get(make_batch(jax.random.fold_in(run_keys(0).data, step), step))


PROGRAMS = {"threefry": {}, "device": {}}


@functools.cache
def fed(n_calls, batch_of=host_batch, rate=SGD.learning_rate, bits="threefry"):
    """Does the same as `train`, on the same batches in host memory, or those of `batch_of(step)`."""
    trainer, batches = make_trainer(dropout_bits=bits), map(batch_of, itertools.count())
    return through(n_calls, steps.make_train_steps_from_iterator(trainer, batches, programs=PROGRAMS[bits]), rate=rate)


def test_steps_on_batches_from_the_host_are_the_steps_on_the_device():
    fed_steps, (state, losses) = fed((3, 4)), train((7,))
    assert_close(fed_steps[0], state, largest=largest_of(state.params))
    assert_close(fed_steps[1], losses)
    jax.tree.map(np.testing.assert_array_equal, fed_steps, fed((1, 5, 1)))


def test_dropout_differs_from_step_to_step_and_may_draw_the_bits_of_the_device():
    batch = jax.device_get(make_batch(KEY, 0))
    _, losses = fed((3,), lambda _: batch, rate=1e-30)  # the same batch, and the same params
    assert len(set(losses)) == 3
    first, again = (fed(calls, bits="device")[1] for calls in ((3,), (1, 2)))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, fed((3, 4))[1][:3])


def test_a_batch_reports_its_own_time_and_that_of_its_step_at_peak(monkeypatch):
    now = 5.0
    monkeypatch.setattr(steps, "time", SimpleNamespace(perf_counter=lambda: now))

    def take(state, batch, numbers):
        nonlocal now
        now += 100
        return state, {"loss_sum": np.float32(7)}

    def batches():
        nonlocal now
        for n_rows in (2, 6, 4):
            now += n_rows / 4
            yield {"weights": np.ones((n_rows, 3), np.float32)}

    monkeypatch.setattr(steps, "deterministic", lambda _: take)
    arguments = make_trainer(microbatches=4), batches()  # padded by two rows without work
    train_steps = steps.make_train_steps_from_iterator(*arguments, lambda batch: len(batch["weights"]) / 8)
    _, metrics = train_steps(None, None, 2)
    assert [metrics[name].tolist() for name in ("data_seconds", "seconds_at_peak")] == [[0.5, 1.5], [0.25, 0.75]]
    _, metrics = steps.make_train_steps_from_iterator(*arguments)(None, None, 1)
    assert metrics["data_seconds"] == [1.0] and "seconds_at_peak" not in metrics
    with pytest.raises(steps.UserError, match="the task's batches end before step 4; repeat them"):
        train_steps(SimpleNamespace(step=3), None, 1)


def test_after_skipped_steps_a_step_has_the_rate_of_its_number_and_adam_counts_updates():
    """Steps 2 to 4 are skipped: 3 for its gradient, 4 for its update. Adam without memory moves params by the rate."""

    def penalty(params, step):
        return jnp.where(step == 3, jnp.inf, 0) * params["final"]["bias"].sum()

    adam = OptimizerConfig(learning_rate=0.1, schedule="linear", warmup_steps=2, b1=0.0, b2=0.0, eps=1e-20)
    trainer = make_trainer(IN_FLOAT32._replace(penalty=penalty), make_optimizer(adam, 9, SPEC), skip_nonfinite=3)
    schedule, state = make_schedule(adam, 9), jax.device_put(start(trainer), one_device().replicated)
    step = steps.jit_step(steps.make_step(trainer), trainer)
    batch = jax.device_get(make_batch(KEY, 0))
    for number in range(9):
        before = jax.device_get(state.params["final"]["bias"])
        skipped = 2 <= number < 5
        of_step = {**batch, "weights": batch["weights"] * (np.nan if number == 2 else 1)}
        rates = dataclasses.replace(adam, learning_rate=np.inf if number == 4 else 0.1)
        state, metrics = step(state, of_step, hyperparameters(0, trainer.config, rates))
        moved = np.abs(jax.device_get(state.params["final"]["bias"]) - before).max()
        assert bool(np.isfinite(metrics["gradient_norm"])) != skipped
        assert bool(np.isfinite(metrics["loss_sum"])) == (number != 2)
        assert moved == pytest.approx(0 if skipped else float(schedule(number)), rel=1e-5)
    assert (int(state.step), int(state.opt_state[0].count)) == (9, 6)
