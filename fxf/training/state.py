"""The state that training updates, and the numbers and random keys that it reads besides batches."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax

from fxf.base.config import arguments
from fxf.base.errors import UserError
from fxf.base.random_keys import random_key
from fxf.base.weights import Params, initialize, shapes
from fxf.models.model import Model
from fxf.training.sharding import Layout


class TrainState(flax.struct.PyTreeNode):
    """The state that a step updates: the number of steps done (int32 scalar), params, and the optimizer's state."""

    step: jax.Array
    params: Params
    opt_state: Any


class Hyperparameters(flax.struct.PyTreeNode):
    """The numbers of a config that a step reads as arguments, so that another value compiles nothing.

    Attributes:
      seed: the run's seed, uint32.
      label_smoothing: a number of the weights' type; None for 0, whose program is shorter.
      optimizer: the optimizer's numbers by their keys, of the same type.
    """

    seed: Any
    label_smoothing: Any = None
    optimizer: dict[str, Any] = flax.struct.field(default_factory=dict)


def hyperparameters(seed: int, train: Any, optimizer: Any = None, dtype: str = "float32") -> Hyperparameters:
    """Returns the numbers of the `train` and `optimizer` sections as NumPy scalars, of the weights' type.

    Raises:
      UserError: JAX has types of 64 bits, but the weights do not.
    """
    if dtype != "float64" and jax.dtypes.canonicalize_dtype("float64") == "float64":
        raise UserError("JAX_ENABLE_X64: training with it needs model.dtype 'float64'; leave it unset")
    number = np.dtype(dtype).type
    smoothing = number(train.label_smoothing) if train.label_smoothing else None
    rates = {} if optimizer is None else {name: number(value) for name, value in arguments(optimizer).items()}
    return Hyperparameters(np.uint32(seed), smoothing, rates)


class RunKeys(NamedTuple):
    """The random keys of a run."""

    params: jax.Array
    data: jax.Array
    dropout: jax.Array


def run_keys(seed: Any) -> RunKeys:
    """Returns the keys of a run, derived from its seed."""
    return RunKeys(*jax.random.split(random_key(seed), 3))


def init_state(
    model: Model, optimizer: optax.GradientTransformation, key: jax.Array, given: Mapping[str, jax.Array] | None = None
) -> TrainState:
    """Returns the state of step 0. Its params are those `given` by path; the others are drawn from `key`."""
    params = initialize(model.spec, key, model.weights_dtype, given)
    return TrainState(jnp.int32(0), params, optimizer.init(params))


def state_shapes(model: Model, optimizer: optax.GradientTransformation, layout: Layout) -> TrainState:
    """Returns the shapes, dtypes and shardings of `init_state`'s result; draws nothing."""
    params = shapes(model.spec, model.weights_dtype)
    step: Any = jax.ShapeDtypeStruct((), jnp.int32)
    return layout.placed(TrainState(step, params, jax.eval_shape(optimizer.init, params)), model.spec)


def state_shardings(model: Model, optimizer: optax.GradientTransformation, layout: Layout) -> TrainState:
    """Returns the state's tree with the shardings of the arrays as leaves."""
    return jax.tree.map(lambda leaf: leaf.sharding, state_shapes(model, optimizer, layout))
