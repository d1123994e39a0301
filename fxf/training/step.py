"""The training step, and the compiled call that runs several."""

from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax

from fxf.models.model import Batch, Model
from fxf.training.loss import cross_entropy, mean
from fxf.weights import Params, initialize

Metrics = dict[str, jax.Array]


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


def loss_and_gradient(
    model: Model, params: Params, batch: Batch, rng: jax.Array | None = None
) -> tuple[jax.Array, jax.Array, Params]:
    """Returns (loss_sum, weight_sum, gradient of loss_sum): sums, so that parts of a batch can be added up."""

    def loss(p: Params) -> tuple[jax.Array, jax.Array]:
        return cross_entropy(model.apply(p, batch, rng=rng), batch["targets"], batch["weights"])

    (loss_sum, weight_sum), gradient = jax.value_and_grad(loss, has_aux=True)(params)
    return loss_sum, weight_sum, gradient


def train_step(
    model: Model, optimizer: optax.GradientTransformation, state: TrainState, batch: Batch, rng: jax.Array | None
) -> tuple[TrainState, Metrics]:
    """Moves the weights by one batch. Metrics: loss_sum, weight_sum, and the gradient's norm before clipping."""
    loss_sum, weight_sum, gradient = loss_and_gradient(model, state.params, batch, rng)
    gradient = jax.tree.map(lambda g: mean(g, weight_sum), gradient)
    updates, opt_state = optimizer.update(gradient, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    metrics = {"loss_sum": loss_sum, "weight_sum": weight_sum, "gradient_norm": optax.tree.norm(gradient)}
    return TrainState(state.step + 1, params, opt_state), metrics


def make_train_steps(
    model: Model,
    optimizer: optax.GradientTransformation,
    make_batch: Callable[[jax.Array, jax.Array], Batch],
    seed: int,
    most: int,
) -> Any:
    """Returns a jitted `train_steps(state, n) -> (state, metrics)`: n steps in one call, with `state` donated.

    `make_batch(key, step)` runs inside. All randomness derives from (seed, step). Metrics are arrays [most], of which
    the first n elements are filled.

    One compiled program serves every n up to `most`: a run resumed between two calls takes the same steps through the
    same program, so it ends with the same bits.
    """
    _, data_key, dropout_key = run_keys(seed)

    def body(i: jax.Array, carry: tuple[TrainState, Metrics]) -> tuple[TrainState, Metrics]:
        state, history = carry
        batch = make_batch(jax.random.fold_in(data_key, state.step), state.step)
        state, metrics = train_step(model, optimizer, state, batch, jax.random.fold_in(dropout_key, state.step))
        return state, {name: history[name].at[i].set(value) for name, value in metrics.items()}

    def train_steps(state: TrainState, n: jax.Array) -> tuple[TrainState, Metrics]:
        history = {name: jnp.zeros(most) for name in ("loss_sum", "weight_sum", "gradient_norm")}
        return jax.lax.fori_loop(0, n, body, (state, history))

    return jax.jit(train_steps, donate_argnums=0)
