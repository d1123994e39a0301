"""The training step, and what runs several: on batches made on the device, or on batches that the host feeds."""

import dataclasses
import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax

from fxf.config import key
from fxf.layers.loss import mean
from fxf.machine.compiled import compiled_by_shape
from fxf.models.model import Batch, Model
from fxf.training.sharding import DATA, Layout
from fxf.weights import Params, initialize, shapes


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


@flax.struct.dataclass
class TrainState:
    """All that a step reads and moves: steps done so far (int32 scalar), params, and the optimizer's state."""

    step: jax.Array
    params: Params
    opt_state: Any


def run_keys(seed: int) -> jax.Array:
    """Returns the three keys of a run: for its initial params, its data, and its dropout."""
    return jax.random.split(jax.random.key(seed), 3)


def init_state(model: Model, optimizer: optax.GradientTransformation, key: jax.Array) -> TrainState:
    params = initialize(model.spec, key)
    return TrainState(jnp.int32(0), params, optimizer.init(params))


def state_shapes(model: Model, optimizer: optax.GradientTransformation) -> TrainState:
    """Returns the shapes and dtypes of what `init_state` returns; draws nothing."""
    params = shapes(model.spec)
    step: Any = jax.ShapeDtypeStruct((), jnp.int32)
    return TrainState(step, params, jax.eval_shape(optimizer.init, params))


def state_shardings(model: Model, optimizer: optax.GradientTransformation, layout: Layout) -> TrainState:
    """Returns the state's tree with the sharding of each array as leaves."""
    opt_state = layout.optimizer_state(state_shapes(model, optimizer).opt_state, model.spec)
    return TrainState(layout.everywhere, layout.weights(model.spec), opt_state)  # type: ignore[arg-type]


def batch_loss(
    model: Model,
    params: Params,
    batch: Batch,
    rng: jax.Array | None = None,
    label_smoothing: float = 0.0,
    layout: Layout | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Returns (loss_sum, weight_sum) of a batch."""
    if layout:
        params, batch = layout.whole_rows(params, model.spec), layout.spread(batch)
    features = model.features(params, batch, rng=rng)

    def loss(features: jax.Array, targets: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
        return model.loss.sums(functools.partial(model.readout, params), features, targets, weights, label_smoothing)

    arrays = (features, batch["targets"], batch["weights"])
    if layout is None:
        return loss(*arrays)
    # The loss reads rows out in groups: each device takes groups of its own rows, and the sums meet once.
    sums = jax.vmap(loss)(*(_cut(x, layout.parts) for x in layout.spread(arrays)))
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
    label_smoothing: float = 0.0,
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
    model: Model,
    optimizer: optax.GradientTransformation,
    config: TrainConfig,
    state: TrainState,
    batch: Batch,
    rng: jax.Array | None,
    *,
    layout: Layout | None = None,
    mapped: bool = False,
) -> tuple[TrainState, Metrics]:
    """Moves the weights by one batch. Metrics: loss_sum, weight_sum, and the gradient's norm before clipping.

    Where `config.skip_nonfinite` is not 0, a batch whose loss or gradient is not finite moves nothing.

    Args:
      mapped: the batch is a device's part of one, and other devices take the same step with theirs.
    """
    sums = loss_and_gradient(
        model,
        state.params,
        batch,
        rng,
        label_smoothing=config.label_smoothing,
        microbatches=config.microbatches,
        layout=layout,
    )
    loss_sum, weight_sum, gradient = jax.lax.psum(sums, DATA) if mapped else sums
    gradient = optax.tree.scale(mean(jnp.float32(1), weight_sum), gradient)
    updates, opt_state = optimizer.update(gradient, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    norm = optax.tree.norm(gradient)
    if config.skip_nonfinite:
        finite = jnp.isfinite(loss_sum) & jnp.isfinite(norm)
        moved, unmoved = (params, opt_state), (state.params, state.opt_state)
        params, opt_state = jax.tree.map(lambda new, old: jnp.where(finite, new, old), moved, unmoved)
    metrics = {"loss_sum": loss_sum, "weight_sum": weight_sum, "gradient_norm": norm}
    return TrainState(state.step + 1, params, opt_state), metrics


def make_step(
    model: Model, optimizer: optax.GradientTransformation, config: TrainConfig, seed: int, layout: Layout | None
) -> Callable[[TrainState, Batch], tuple[TrainState, Metrics]]:
    """Returns `step(state, batch)`, whose dropout derives from (seed, step); call it under `jax.jit`."""
    _, _, dropout_key = run_keys(seed)

    def step(state: TrainState, batch: Batch, mapped: bool = False) -> tuple[TrainState, Metrics]:
        rng = jax.random.fold_in(dropout_key, state.step)
        if mapped:
            rng = jax.random.fold_in(rng, jax.lax.axis_index(DATA))
        return train_step(model, optimizer, config, state, batch, rng, layout=None if mapped else layout, mapped=mapped)

    if layout is None or not layout.pmap:
        return step
    parts, devices = layout.parts, list(layout.mesh.devices.flat)
    on_each = jax.pmap(
        functools.partial(step, mapped=True), axis_name=DATA, in_axes=(None, 0), out_axes=None, devices=devices
    )
    return lambda state, batch: on_each(state, {name: _cut(value, parts) for name, value in batch.items()})


def jit_step(program: Callable, model: Model, optimizer: optax.GradientTransformation, layout: Layout | None) -> Any:
    """Returns `program(state, ...) -> (state, metrics)`, jitted: the state is donated, and stays where it was."""
    if layout is None:
        return jax.jit(program, donate_argnums=0)
    shardings = (state_shardings(model, optimizer, layout), layout.everywhere)
    return jax.jit(program, donate_argnums=0, out_shardings=shardings)


def make_train_steps(
    model: Model,
    optimizer: optax.GradientTransformation,
    config: TrainConfig,
    make_batch: Callable[[jax.Array, jax.Array], Batch],
    seed: int,
    most: int,
    layout: Layout | None = None,
) -> Any:
    """Returns a jitted `train_steps(state, n) -> (state, metrics)`: n steps in one call, with `state` donated.

    `make_batch(key, step)` runs inside. All randomness derives from (seed, step). Metrics are arrays [most], of which
    the first n elements are filled.

    One compiled program serves every n up to `most`: a run resumed between two calls takes the same steps through the
    same program, so it ends with the same bits.
    """
    _, data_key, _ = run_keys(seed)
    step = make_step(model, optimizer, config, seed, layout)

    def body(i: jax.Array, carry: tuple[TrainState, Metrics]) -> tuple[TrainState, Metrics]:
        state, history = carry
        batch = make_batch(jax.random.fold_in(data_key, state.step), state.step)
        state, metrics = step(state, layout.spread(batch) if layout else batch)
        return state, {name: history[name].at[i].set(value) for name, value in metrics.items()}

    def train_steps(state: TrainState, n: jax.Array) -> tuple[TrainState, Metrics]:
        history = {name: jnp.zeros(most) for name in METRICS}
        return jax.lax.fori_loop(0, n, body, (state, history))

    return jit_step(train_steps, model, optimizer, layout)


def make_fed_train_steps(
    model: Model,
    optimizer: optax.GradientTransformation,
    config: TrainConfig,
    batches: Any,
    seed: int,
    compiling: Callable[[], AbstractContextManager],
    layout: Layout | None = None,
) -> Callable[[TrainState, int], tuple[TrainState, Metrics]]:
    """Returns `train_steps(state, n)` like `make_train_steps`, whose steps take the next batches of an iterator.

    One program compiles for each shape of batch.

    Args:
      compiling: entered while a program compiles, to count that time apart.
    """
    jitted = jit_step(make_step(model, optimizer, config, seed, layout), model, optimizer, layout)
    step = compiled_by_shape(jitted, compiling)

    def train_steps(state: TrainState, n: int) -> tuple[TrainState, Metrics]:
        history = []
        for _ in range(n):
            batch = next(batches)
            if layout:
                batch = layout.place(batch, config.microbatches * layout.parts)
            state, metrics = step(state, batch)
            history.append(metrics)
        arrays = jax.device_get(history)
        return state, {name: np.array([metrics[name] for metrics in arrays]) for name in METRICS}

    return train_steps
