"""The training step, and functions that run several, on batches made on the device or by the host."""

import dataclasses
import functools
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun, jaxprs_in_params

from fxf.base.config import key
from fxf.base.devices import DATA
from fxf.base.errors import UserError
from fxf.base.on_cpu import depending_on
from fxf.base.on_gpu import deterministic, norm_of
from fxf.base.random_keys import random_key
from fxf.base.weights import Params, Weight
from fxf.layers import fp8
from fxf.layers.loss import or_one
from fxf.models.model import Batch, Model
from fxf.training.copies import Copies, are_only_cast, copies_of, reading
from fxf.training.fine_tuning import without_other_updates
from fxf.training.gradient import metric_names, objective_and_gradient, terms_and_figures
from fxf.training.sharding import Layout
from fxf.training.state import Hyperparameters, TrainState, run_keys, state_shardings


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """The `train` section."""

    steps: int = key(1000, "number of optimizer steps", minimum=1)
    batch_size: int = key(64, "sequences per step; a maximum if data.batch_tokens sets the batches", minimum=1)
    microbatches: int = key(1, "gradient accumulation: equal parts of a batch; a CPU splits large ones", minimum=1)
    label_smoothing: float = key(0.0, "share of a target's probability spread over all tokens", minimum=0, below=1)
    dropout_bits: Literal["threefry", "device"] = key(
        "threefry",
        "how dropout draws bits; threefry: the same on every kind of device; device: the fastest way of the device",
    )
    products: Literal["model", "fp8"] = key(
        "model", "type of the matrix products of blocks in training; model: model.dtype; fp8: 8 bits"
    )
    skip_nonfinite: int = key(0, "steps with a non-finite loss or gradient that a run may skip", minimum=0)
    evaluate_every: int = key(0, "steps between validations; 0: only the test at the end", minimum=0)
    patience: int = key(0, "early stopping: evaluations without a better checkpoint.best; 0: never", minimum=0)


Metrics = dict[str, Any]
STEP_METRICS = ("loss_sum", "weight_sum", "gradient_norm")


class Trainer(NamedTuple):
    """The parts of a training step; `layout` holds its devices.

    Attributes:
      asked: the model's `terms_and_figures`; None finds them, by tracing the loss once more.
      copies: copies of the params, which the model reads in their place.
    """

    model: Model
    optimizer: optax.GradientTransformation
    config: TrainConfig
    layout: Layout
    asked: Sequence[str] | None = None
    copies: Copies | None = None


def train_step(
    trainer: Trainer, state: TrainState, batch: Batch, hyperparameters: Hyperparameters
) -> tuple[TrainState, Metrics]:
    """Returns the state after one batch, and the metrics: loss_sum, weight_sum, the gradient's norm before clipping.

    The metrics also have the model's terms and figures. The gradient is that of the mean loss, the terms and the
    model's penalty, which the metrics leave out. If `config.skip_nonfinite` is not 0, a batch whose loss, gradient or
    update is not finite changes only the number of the step, which sets the learning rate.

    An optimizer may read more, by optax's names: `value`, the mean loss; `grad_fn(params, ...)`, the gradient of the
    same batch, with the same dropout, at other params; and `key`, a random key of seed and step, equal on all devices.

    Args:
      batch: under `jax.pmap` one device's part.
    """
    model = trainer.model
    if trainer.config.products == "fp8":
        model = model._replace(features=fp8.products()(model.features))
    sums = functools.partial(
        objective_and_gradient,
        batch=batch,
        rng=_dropout_key(trainer, hyperparameters.seed, state.step),
        label_smoothing=hyperparameters.label_smoothing,
        microbatches=trainer.config.microbatches,
        layout=trainer.layout,
        asked=trainer.asked,
    )

    def penalized(params: Params, weight_sum: jax.Array, gradient: Params) -> Params:
        if (penalty := model.penalty) is None:
            return gradient
        of_penalty = jax.grad(lambda params: penalty(model.to_plain(params), state.step))(params)
        return jax.tree.map(lambda g, p: g + or_one(weight_sum) * p, gradient, of_penalty)

    def grad_fn(params: Params, *number: Any) -> Params:  # optax numbers the calls of one step
        is_own = lambda weight, p: isinstance(p, optax.MaskedNode) or weight.by != "optimizer"  # noqa: E731
        whole = jax.tree.map(lambda w, own, p: own if is_own(w, p) else p, model.spec, state.params, params)
        _, n, gradient, _ = sums(model, whole)
        gradient = without_other_updates(model.spec, penalized(whole, n, gradient))
        return jax.tree.map(lambda g, p: p if isinstance(p, optax.MaskedNode) else g / or_one(n), gradient, params)

    here = reading(model, trainer.copies) if trainer.copies else model
    loss_sum, weight_sum, gradient, shown = sums(here, state.params)
    gradient = penalized(state.params, weight_sum, gradient)
    # Scale the norm, not the arrays: this saves a pass.
    norm = norm_of(without_other_updates(model.spec, gradient))
    factor = 1 / or_one(weight_sum.astype(norm.dtype))  # a task's weights may be float32 where all else is float64
    norm = factor * norm
    gradient = jax.tree.map(functools.partial(_mean, depending_on(norm, factor), weight_sum), model.spec, gradient)
    optimizer = optax.with_extra_args_support(trainer.optimizer)
    known = {"numbers": hyperparameters.optimizer, "norm": norm, "step": state.step, "value": factor * loss_sum}
    key = jax.random.fold_in(run_keys(hyperparameters.seed).dropout, ~state.step)  # which is no step of dropout
    updates, opt_state = optimizer.update(gradient, state.opt_state, state.params, grad_fn=grad_fn, key=key, **known)
    params = optax.apply_updates(state.params, updates)
    if trainer.config.skip_nonfinite:
        norm = jnp.where(jnp.isfinite(optax.tree.norm(updates)), norm, jnp.nan)  # also of gradients at other params
        finite = jnp.isfinite(loss_sum) & jnp.isfinite(norm)
        params, opt_state = optax.tree.where(finite, (params, opt_state), (state.params, state.opt_state))
    metrics = {"loss_sum": loss_sum, "weight_sum": weight_sum, "gradient_norm": norm, **shown}
    return TrainState(state.step + 1, params, opt_state), metrics


def _mean(factor: jax.Array, n: jax.Array, weight: Weight, gradient: jax.Array) -> jax.Array:
    """Returns gradient / n, by the factor 1 / n.

    A weight that moves by its gradient gets a quotient. So whole numbers move it exactly if n is whole: masks stay 0 or
    1. The factor would miss, because n · (1 / n) need not be 1, nor is it where XLA joins product and difference.
    """
    if weight.by != "gradient":
        return factor * gradient
    return gradient / jnp.where(jnp.isnan(gradient), gradient, or_one(n))  # by one number XLA does not divide arrays


def _dropout_key(trainer: Trainer, seed: Any, step: jax.Array) -> jax.Array:
    """Returns the key of a step's dropout; under `jax.pmap` each device has its own."""
    key = run_keys(seed).dropout
    if trainer.config.dropout_bits == "device":
        key = jax.random.wrap_key_data(jnp.tile(jax.random.key_data(key)[:2], 2), impl="rbg")
    key = jax.random.fold_in(key, step)
    return jax.random.fold_in(key, jax.lax.axis_index(DATA)) if trainer.layout.pmap else key


def make_step(trainer: Trainer) -> Callable[[TrainState, Batch, Hyperparameters], tuple[TrainState, Metrics]]:
    """Returns `train_step` of a trainer, which under pmap maps it over the devices; to be called under `jax.jit`."""
    step = functools.partial(train_step, trainer)
    if not trainer.layout.pmap:
        return step
    devices = list(trainer.layout.mesh.devices.flat)
    step_on_each = jax.pmap(step, axis_name=DATA, in_axes=(None, 0, None), out_axes=None, devices=devices)

    def mapped(state: TrainState, batch: Batch, hyperparameters: Hyperparameters) -> Any:
        by_device = {name: x.reshape(len(devices), -1, *x.shape[1:]) for name, x in batch.items()}
        return step_on_each(state, by_device, hyperparameters)

    return mapped


def jit_step(program: Callable, trainer: Trainer) -> Any:
    """Returns `program(state, ...) -> (state, metrics)` jitted; the state is donated and keeps its sharding."""
    shardings = state_shardings(trainer.model, trainer.optimizer, trainer.layout), trainer.layout.replicated
    return jax.jit(program, donate_argnums=0, out_shardings=shardings)


def with_arrays(make_batch: Callable[[jax.Array, jax.Array], Batch]) -> tuple[Callable[..., Batch], list[Any], str]:
    """Returns `batch(key, step, *arrays)`, the arrays that `make_batch` reads besides, and the text of its program.

    As constants of a program, the tokens of a text would be compiled and cached with it, and copied several times.
    """
    # A new function, because JAX caches the trace of a function.
    closed, shape = jax.make_jaxpr(lambda *args: make_batch(*args), return_shape=True)(random_key(0), np.int32(0))

    def batch(key: jax.Array, step: jax.Array, *arrays: jax.Array) -> Batch:
        return jax.tree.unflatten(jax.tree.structure(shape), jaxpr_as_fun(ClosedJaxpr(closed.jaxpr, arrays))(key, step))

    consts = _constants_inside(closed.jaxpr)
    inside = [hashlib.sha256(x.tobytes()).hexdigest() if hasattr(x, "tobytes") else str(x) for x in consts]
    return batch, closed.consts, f"{closed.jaxpr} {inside}"


def _constants_inside(program: Any) -> Iterator[Any]:
    """Yields the constants of programs inside a program, as of a function with a `jit` of its own.

    The text of a program leaves them out.
    """
    for equation in program.eqns:
        yield from getattr(equation.params.get("jaxpr"), "consts", ())
        for inner in jaxprs_in_params(equation.params):
            yield from _constants_inside(inner)


def make_train_steps(trainer: Trainer, make_batch: Callable[..., Batch], max_steps: int) -> Any:
    """Returns a jitted `train_steps(state, hyperparameters, n, *arrays) -> (state, metrics)`, which takes n steps.

    It donates `state`. `make_batch(key, step, *arrays)` runs inside. All randomness derives from (seed, step). Metrics
    are arrays [max_steps], of which the first n elements are filled.

    One compiled program serves every n up to `max_steps`. So a run that resumes between two calls takes the same steps
    through the same program, and ends with the same bits.
    """
    model, layout = trainer.model, trainer.layout

    def train_steps(state: TrainState, hyperparameters: Hyperparameters, n: jax.Array, *arrays: jax.Array) -> Any:
        keys = run_keys(hyperparameters.seed)
        shape = jax.eval_shape(make_batch, keys.data, state.step, *arrays)
        asked = terms_and_figures(model, state.params, shape, keys.dropout)
        only_cast = are_only_cast(model, state.params, shape, keys.dropout, layout)

        def body(i: jax.Array, carry: tuple[TrainState, Metrics, Copies]) -> tuple[TrainState, Metrics, Copies]:
            state, history, copies = carry
            step = make_step(trainer._replace(copies=copies, asked=asked))
            batch = make_batch(jax.random.fold_in(keys.data, state.step), state.step, *arrays)
            state, metrics = step(state, layout.shard(batch), hyperparameters)
            history = {name: history[name].at[i].set(value) for name, value in metrics.items()}
            return state, history, copies_of(model, state.params, only_cast, layout)

        history = {name: jnp.zeros(max_steps) for name in (*STEP_METRICS, *metric_names(asked))}
        copies = copies_of(model, state.params, only_cast, layout)
        return jax.lax.fori_loop(0, n, body, (state, history, copies))[:2]

    return jit_step(train_steps, trainer)


def make_train_steps_from_iterator(
    trainer: Trainer,
    batches: Any,
    seconds_at_peak: Callable[[Batch], float] | None = None,
    programs: dict[Any, Any] | None = None,
) -> Callable[[TrainState, Hyperparameters, int], tuple[TrainState, Metrics]]:
    """Returns `train_steps(state, hyperparameters, n)` like `make_train_steps`, with batches of the iterator `batches`.

    Each batch shape compiles one program. The metrics also have `data_seconds`, the time that the host waited for each
    batch.

    Args:
      seconds_at_peak: returns the time of a step on a batch at the devices' peak; the metrics then have it, without
        the share of padding rows.
      programs: a cache for the jitted step.
    """
    layout, programs = trainer.layout, {} if programs is None else programs
    step = programs.setdefault("step", deterministic(jit_step(make_step(trainer), trainer)))

    def train_steps(state: TrainState, hyperparameters: Hyperparameters, n: int) -> tuple[TrainState, Metrics]:
        history = []
        for _ in range(n):
            start = time.perf_counter()
            if (host_batch := next(batches, None)) is None:
                what = f"the task's batches end before step {int(state.step) + 1}; repeat them, as by Grain's repeat()"
                raise UserError(f"batches: {what}, or set train.steps below it")
            seconds = {"data_seconds": time.perf_counter() - start}
            batch = layout.put(host_batch, trainer.config.microbatches * layout.parts)
            if seconds_at_peak:
                padding = len(batch["weights"]) / (len(host_batch["weights"]) * jax.process_count())
                seconds["seconds_at_peak"] = seconds_at_peak(batch) / padding
            state, metrics = step(state, batch, hyperparameters)
            history.append(metrics | seconds)
        arrays = jax.device_get(history)
        return state, {name: np.array([metrics[name] for metrics in arrays]) for name in arrays[0]}

    return train_steps
