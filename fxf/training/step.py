"""The training step, and what runs several: on batches made on the device, or on batches that the host feeds."""

import dataclasses
import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fxf.config import key
from fxf.layers.loss import mean
from fxf.machine.compiled import compiled_by_shape
from fxf.models.model import Batch, Model
from fxf.training.sharding import DATA, Layout
from fxf.training.state import Hyperparameters, TrainState, run_keys, state_shardings
from fxf.weights import Params


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """The `train` section."""

    steps: int = key(1000, "optimizer steps", minimum=1)
    batch_size: int = key(64, "sequences a step; for batches of a token budget, at most", minimum=1)
    microbatches: int = key(1, "equal parts of a batch whose gradients are summed one after the other", minimum=1)
    label_smoothing: float = key(0.0, "share of a target's probability spread over all tokens", minimum=0, below=1)
    skip_nonfinite: int = key(
        0, "steps whose loss or gradient is not finite that a run may have; they move nothing", minimum=0
    )
    evaluate_every: int = key(0, "steps between validations; the test after the last step comes anyway", minimum=0)
    patience: int = key(
        0, "evaluations without a better checkpoint.best after which training stops; 0 never stops", minimum=0
    )


Metrics = dict[str, Any]
METRICS = ("loss_sum", "weight_sum", "gradient_norm")


class Trainer(NamedTuple):
    """What a training step is made of; `layout` holds the devices that share it."""

    model: Model
    optimizer: optax.GradientTransformation
    config: TrainConfig
    layout: Layout


def batch_loss(
    model: Model,
    params: Params,
    batch: Batch,
    rng: jax.Array | None = None,
    label_smoothing: jax.Array | float | None = None,
    layout: Layout | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Returns (loss_sum, weight_sum) of a batch.

    Args:
      label_smoothing: None for 0.
      layout: of the devices that share the batch's rows; None where one array holds them.
    """
    if layout:
        params, batch = layout.gather_tables(params, model.spec), layout.shard_rows(batch)
    features = model.features(params, batch, rng=rng)

    def loss(features: jax.Array, targets: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
        return model.loss.sums(functools.partial(model.readout, params), features, targets, weights, label_smoothing)

    arrays = (features, batch["targets"], batch["weights"])
    if layout is None or layout.parts == 1:
        return loss(*arrays)
    # The loss reads rows out in groups: each device takes groups of its own rows, and the sums meet once.
    sums = jax.vmap(loss)(*(_cut(x, layout.parts) for x in layout.shard_rows(arrays)))
    return jax.tree.map(jnp.sum, sums)


def _cut(x: jax.Array, parts: int) -> jax.Array:
    """Cuts the rows [B, ...] into [parts, B / parts, ...]."""
    return x.reshape(parts, -1, *x.shape[1:])


def loss_and_gradient(
    model: Model,
    params: Params,
    batch: Batch,
    rng: jax.Array | None = None,
    *,
    label_smoothing: jax.Array | float | None = None,
    microbatches: int = 1,
    layout: Layout | None = None,
) -> tuple[jax.Array, jax.Array, Params]:
    """Returns (loss_sum, weight_sum, gradient of loss_sum): sums, so that parts of a batch can be added up.

    Args:
      microbatches: number of equal parts to take one after the other, each in the memory of the one before.
      layout: of the devices that share the rows of each part, and of the params.
    """

    def part(part_batch: Batch, part_rng: jax.Array | None) -> tuple[jax.Array, jax.Array, Params]:
        def loss(p: Params) -> tuple[jax.Array, jax.Array]:
            return batch_loss(model, p, part_batch, part_rng, label_smoothing, layout)

        (loss_sum, weight_sum), gradient = jax.value_and_grad(loss, has_aux=True)(params)
        return loss_sum, weight_sum, gradient

    if microbatches == 1:
        return part(batch, rng)

    def add(total: Any, one: Any) -> tuple[Any, None]:
        i, part_batch = one
        return jax.tree.map(jnp.add, total, part(part_batch, None if rng is None else jax.random.fold_in(rng, i))), None

    parts = {name: _cut(value, microbatches) for name, value in batch.items()}
    start = (jnp.zeros(()), jnp.zeros(()), jax.tree.map(jnp.zeros_like, params))
    return jax.lax.scan(add, start, (jnp.arange(microbatches), parts))[0]


def train_step(
    trainer: Trainer,
    state: TrainState,
    batch: Batch,
    numbers: Hyperparameters,
    rng: jax.Array | None,
    *,
    mapped: bool = False,
) -> tuple[TrainState, Metrics]:
    """Moves the weights by one batch. Metrics: loss_sum, weight_sum, and the gradient's norm before clipping.

    Where `config.skip_nonfinite` is not 0, a batch whose loss or gradient is not finite moves nothing.

    Args:
      mapped: the batch is a device's part of one, and other devices take the same step with theirs.
    """
    sums = loss_and_gradient(
        trainer.model,
        state.params,
        batch,
        rng,
        label_smoothing=numbers.label_smoothing,
        microbatches=trainer.config.microbatches,
        layout=None if mapped else trainer.layout,
    )
    loss_sum, weight_sum, gradient = jax.lax.psum(sums, DATA) if mapped else sums
    gradient = optax.tree.scale(mean(jnp.float32(1), weight_sum), gradient)
    optimizer = optax.with_extra_args_support(trainer.optimizer)
    updates, opt_state = optimizer.update(gradient, state.opt_state, state.params, numbers=numbers.optimizer)
    params = optax.apply_updates(state.params, updates)
    norm = optax.tree.norm(gradient)
    if trainer.config.skip_nonfinite:
        finite = jnp.isfinite(loss_sum) & jnp.isfinite(norm)
        moved, unmoved = (params, opt_state), (state.params, state.opt_state)
        params, opt_state = jax.tree.map(lambda new, old: jnp.where(finite, new, old), moved, unmoved)
    metrics = {"loss_sum": loss_sum, "weight_sum": weight_sum, "gradient_norm": norm}
    return TrainState(state.step + 1, params, opt_state), metrics


Step = Callable[[TrainState, Batch, Hyperparameters], tuple[TrainState, Metrics]]


def make_step(trainer: Trainer) -> Step:
    """Returns `step(state, batch, numbers)`, whose dropout derives from (seed, step); call it under `jax.jit`."""

    def step(state: TrainState, batch: Batch, numbers: Hyperparameters, mapped: bool = False) -> Any:
        rng = jax.random.fold_in(run_keys(numbers.seed).dropout, state.step)
        if mapped:
            rng = jax.random.fold_in(rng, jax.lax.axis_index(DATA))
        return train_step(trainer, state, batch, numbers, rng, mapped=mapped)

    layout = trainer.layout
    if not layout.pmap:
        return step
    on_each = jax.pmap(
        functools.partial(step, mapped=True),
        axis_name=DATA,
        in_axes=(None, 0, None),
        out_axes=None,
        devices=list(layout.mesh.devices.flat),
    )
    return lambda state, batch, numbers: on_each(
        state, {name: _cut(value, layout.parts) for name, value in batch.items()}, numbers
    )


def jit_step(program: Callable, trainer: Trainer) -> Any:
    """Returns `program(state, ...) -> (state, metrics)`, jitted: the state is donated, and stays where it was."""
    layout = trainer.layout
    shardings = (state_shardings(trainer.model, trainer.optimizer, layout), layout.replicated)
    return jax.jit(program, donate_argnums=0, out_shardings=shardings)


def make_train_steps(trainer: Trainer, make_batch: Callable[[jax.Array, jax.Array], Batch], most: int) -> Any:
    """Returns a jitted `train_steps(state, numbers, n) -> (state, metrics)`: n steps in one call, `state` donated.

    `make_batch(key, step)` runs inside. All randomness derives from (seed, step). Metrics are arrays [most], of which
    the first n elements are filled.

    One compiled program serves every n up to `most`: a run resumed between two calls takes the same steps through the
    same program, so it ends with the same bits.
    """
    step = make_step(trainer)

    def train_steps(state: TrainState, numbers: Hyperparameters, n: jax.Array) -> tuple[TrainState, Metrics]:
        data_key = run_keys(numbers.seed).data

        def body(i: jax.Array, carry: tuple[TrainState, Metrics]) -> tuple[TrainState, Metrics]:
            state, history = carry
            batch = make_batch(jax.random.fold_in(data_key, state.step), state.step)
            state, metrics = step(state, trainer.layout.shard_rows(batch), numbers)
            return state, {name: history[name].at[i].set(value) for name, value in metrics.items()}

        history = {name: jnp.zeros(most) for name in METRICS}
        return jax.lax.fori_loop(0, n, body, (state, history))

    return jit_step(train_steps, trainer)


def make_train_steps_from_iterator(
    trainer: Trainer, batches: Any, compiling: Callable[[], AbstractContextManager]
) -> Callable[[TrainState, Hyperparameters, int], tuple[TrainState, Metrics]]:
    """Returns `train_steps(state, numbers, n)` like `make_train_steps`, whose steps take an iterator's next batches.

    One program compiles for each shape of batch.

    Args:
      compiling: entered while a program compiles, to count that time apart.
    """
    layout = trainer.layout
    step = compiled_by_shape(jit_step(make_step(trainer), trainer), compiling)

    def train_steps(state: TrainState, numbers: Hyperparameters, n: int) -> tuple[TrainState, Metrics]:
        history = []
        for _ in range(n):
            batch = layout.put(next(batches), trainer.config.microbatches * layout.parts)
            state, metrics = step(state, batch, numbers)
            history.append(metrics)
        arrays = jax.device_get(history)
        return state, {name: np.array([metrics[name] for metrics in arrays]) for name in METRICS}

    return train_steps
