"""Wrappers of an optimizer: frozen weights, learning rates of single weights, and an average of the params."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fxf.base.errors import UserError
from fxf.base.weights import Params, Spec, Weight, leaves, map_weights, matching, without_repeats
from fxf.models.model import Model
from fxf.training.state import TrainState

FROZEN, TRAINED = "frozen", "trained"


def labels(spec: Spec, patterns: str, where: str = "") -> Any:
    """Returns a tree of labels: FROZEN for weights of rate 0 and those that a pattern matches, TRAINED for others.

    Args:
      where: the config key that holds the patterns, as in `matching`.
    """
    chosen = set(matching(patterns, [path for path, _ in leaves(spec)], where))
    return map_weights(lambda path, w: FROZEN if path in chosen or w.rate == 0 else TRAINED, spec)


def has_frozen(spec: Spec, patterns: str) -> bool:
    """Returns whether a weight is frozen."""
    return bool(patterns) or any(weight.rate == 0 for _, weight, _ in without_repeats(spec))


def require_frozen(spec: Spec, patterns: str) -> None:
    """Raises a UserError if a pattern of `optimizer.frozen` matches no weight, or if no weight is left to train."""
    if patterns and TRAINED not in jax.tree.leaves(labels(spec, patterns, "optimizer.frozen")):
        raise UserError(f"optimizer.frozen: '{patterns}' matches every weight that trains; nothing is left to train")


def freeze(optimizer: optax.GradientTransformation, spec: Spec, patterns: str) -> optax.GradientTransformationExtraArgs:
    """Returns the optimizer of the weights that are not frozen. It holds no state for the others.

    The update of a frozen weight is -0.0, because the sum of -0.0 and any number is that number, -0.0 too.
    """
    still = optax.stateless(lambda updates, _: jax.tree.map(lambda u: jnp.full_like(u, -0.0), updates))
    return optax.partition({TRAINED: optimizer, FROZEN: still}, labels(spec, patterns))


def without_frozen_gradient(model: Model, patterns: str) -> Model:
    """Returns a model with the same outputs, whose frozen weights get no gradient, so that none is computed."""
    if not has_frozen(model.spec, patterns):
        return model
    tree = labels(model.spec, patterns)

    def stopped(params: Params) -> Params:
        still = jax.tree.map(lambda label, p: jax.lax.stop_gradient(p) if label == FROZEN else p, tree, params)
        return model.to_plain(still)

    return model._replace(to_plain=stopped)


def without_other_updates(spec: Spec, gradient: Any) -> Any:
    """Returns the gradient, with zeros for weights that the optimizer does not update (`Weight.by`)."""
    return jax.tree.map(lambda weight, g: g if weight.by == "optimizer" else jnp.zeros_like(g), spec, gradient)


def has_own_rate(weight: Weight) -> bool:
    """Returns whether the updates of a weight are multiplied by its own rate."""
    return weight.rate not in (0, 1) and weight.by == "optimizer"


def at_own_rates(optimizer: optax.GradientTransformationExtraArgs, spec: Spec) -> optax.GradientTransformationExtraArgs:
    """Returns the optimizer whose update of each weight is multiplied by the weight's own `rate`.

    It also updates weights by the gradient or its sign (`Weight.by`); the optimizer sees their new values, which may
    hold what the step found in its batch. Weight decay does not depend on `rate` (Wang and Aitchison 2024). The
    optimizer must read params for weight decay alone, and must freeze weights of rate 0.
    """

    def move(weight: Weight, g: jax.Array, moved: jax.Array) -> jax.Array:
        if weight.by != "optimizer":
            return -weight.rate * (jnp.sign(g) if weight.by == "sign" else g)
        return weight.rate * moved if has_own_rate(weight) else moved

    def seen(weight: Weight, g: jax.Array, p: jax.Array) -> jax.Array:
        if weight.by != "optimizer":
            return p + move(weight, g, g)
        # The rate multiplies the decay too, so the optimizer sees a weight that is larger by 1 / rate.
        return p / weight.rate if has_own_rate(weight) else p

    def update(updates: Any, state: Any, params: Any = None, **more: Any) -> tuple[Any, Any]:
        shown = None if params is None else jax.tree.map(seen, spec, updates, params)
        moved, state = optimizer.update(without_other_updates(spec, updates), state, shown, **more)
        return jax.tree.map(move, spec, updates, moved), state

    return optax.GradientTransformationExtraArgs(optimizer.init, update)


def unscaled_params(spec: Spec, larger: Any) -> Any:
    """Undoes the scaling of the params that `at_own_rates` shows to its optimizer."""

    def smaller(weight: Weight, p: Any) -> Any:
        return p * weight.rate if has_own_rate(weight) and not isinstance(p, optax.MaskedNode) else p

    return jax.tree.map(smaller, spec, larger)


class Averaging(NamedTuple):
    """The state of an optimizer that averages the params: their average, its number of updates, the inner state."""

    average: Params
    n_updates: jax.Array
    inner: Any


def averaging(optimizer: optax.GradientTransformationExtraArgs, decay: float) -> optax.GradientTransformationExtraArgs:
    """Returns the optimizer, whose state also has the exponential moving average of the params.

    The average begins with the first params. Update t, from 0, moves it by 1 - min(decay, (1 + t) / (10 + t)) of the
    way to the new params, so the first params soon count little (as TensorFlow's ExponentialMovingAverage).
    """

    def init(params: Params) -> Averaging:
        return Averaging(jax.tree.map(jnp.copy, params), jnp.int32(0), optimizer.init(params))

    def update(updates: Any, state: Averaging, params: Any = None, **more: Any) -> tuple[Any, Averaging]:
        updates, inner = optimizer.update(updates, state.inner, params, **more)
        share = 1 - jnp.minimum(decay, (1 + state.n_updates) / (10 + state.n_updates))
        moved = optax.apply_updates(params, updates)
        average = jax.tree.map(lambda a, p: a - share * (a - p), state.average, moved)
        return updates, Averaging(average, optax.safe_increment(state.n_updates), inner)

    return optax.GradientTransformationExtraArgs(init, update)


def evaluated_params(state: TrainState) -> Params:
    """Returns the params that evaluation, decoding and export use: their average if the optimizer keeps one.

    The average may be nested in other optimizers' states, such as a clip's. Frozen weights have none.
    """
    inside = jax.tree.leaves(state.opt_state, is_leaf=lambda x: isinstance(x, Averaging))
    average = next((x.average for x in inside if isinstance(x, Averaging)), state.params)
    return jax.tree.map(lambda p, a: p if isinstance(a, optax.MaskedNode) else a, state.params, average)
