"""Optimizers, which are optax's, and learning-rate schedules by config."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fxf.base.config import Choices, arguments, defaults, key, one_of, require_off
from fxf.base.errors import UserError
from fxf.base.weights import Spec, Weight, axes_of_matrix, decay_mask, map_weights, without_repeats
from fxf.training.fine_tuning import at_own_rates, averaging, freeze, has_frozen, has_own_rate, unscaled_params


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """The `optimizer` section. A key that the chosen optimizer does not read must keep its default."""

    name: str = key("adam", "one of fxf.training.optimizer.OPTIMIZERS")
    learning_rate: float = key(1e-3, "peak learning rate", above=0, argument=True)
    schedule: str = key("constant", "schedule after the warm-up, one of fxf.training.optimizer.SCHEDULES")
    warmup_steps: int = key(0, "steps of linear warm-up from 0", minimum=0)
    final_learning_rate: float = key(
        0.0,
        "rate at the last step, not a share of learning_rate",
        minimum=0,
        argument=True,
        when="schedule=linear or cosine or wsd",
    )
    b1: float = key(0.9, "decay of the mean of gradients", minimum=0, below=1)
    b2: float = key(0.999, "decay of the mean of squared gradients", minimum=0, below=1)
    eps: float = key(1e-8, "added to the denominator", above=0)
    momentum: float = key(0.0, "decay of the accumulated gradients", minimum=0, below=1)
    weight_decay: float = key(
        0.0,
        "decoupled decay of matrices other than embeddings; of muon, of those that it orthogonalizes",
        minimum=0,
        argument=True,
    )
    clip_norm: float = key(0.0, "gradient clipping: maximum of the global norm; 0: off", minimum=0)
    decay_steps: int = key(0, "steps of the fall to final_learning_rate at the end", minimum=0, when="schedule=wsd")
    frozen: str = key("", "patterns of weights that are not trained, such as embedding/*,blocks/0/*")
    ema_decay: float = key(0.0, "decay of an average of the params, which is evaluated; 0: off", minimum=0, below=1)


Schedule = Callable[[Any], Any]
# Builds an optimizer from its learning rate, the table of weights, and its config keys as keywords.
Build = Callable[..., optax.GradientTransformation]


def plain(build: Build) -> Build:
    """Returns the builder of an optax optimizer that does not need the table of weights."""
    return lambda learning_rate, spec, **keys: build(learning_rate, **keys)


def decaying(build: Build) -> Build:
    """Returns the builder of an optax optimizer that decays only the weights of `decay_mask`."""
    return lambda learning_rate, spec, **keys: build(learning_rate, mask=lambda _: decay_mask(spec), **keys)


def muon(rate: Any, spec: Spec, *, b1: float, b2: float, eps: float, weight_decay: float) -> Any:
    """Returns Muon, which orthogonalizes the momentum of matrices; NAdam updates all else (Jordan et al. 2024).

    Updates of a matrix have the size of Adam's, so one learning rate serves both (Liu et al. 2025).
    """
    from optax import contrib  # imported here, because no other optimizer needs it

    def numbers(_: str, weight: Weight) -> Any:
        axes = axes_of_matrix(weight)
        return None if axes is None else contrib.MuonDimensionNumbers(*axes)

    dimensions = map_weights(numbers, spec)
    return contrib.muon(
        rate,
        eps=eps,
        weight_decay=weight_decay,
        weight_decay_mask=lambda _: decay_mask(spec),
        adam_b1=b1,
        adam_b2=b2,
        muon_weight_dimension_numbers=lambda _: dimensions,
        consistent_rms=0.2,
    )


class RegisteredOptimizer(NamedTuple):
    """How to build an optimizer, the keys of OptimizerConfig that it reads, and the class of its section.

    Attributes:
      unit_steps: whether its update of each element is about as large as the learning rate, whatever the gradient's
        size, and reads params only for weight decay. `model.base_width` needs such an optimizer.
    """

    build: Build
    reads: tuple[str, ...] = ()
    config: type[OptimizerConfig] = OptimizerConfig
    unit_steps: bool = False


OPTIMIZERS: Choices[RegisteredOptimizer] = Choices(
    {
        "sgd": RegisteredOptimizer(plain(optax.sgd), ("momentum",)),
        "adam": RegisteredOptimizer(plain(optax.adam), ("b1", "b2", "eps"), unit_steps=True),
        "adamw": RegisteredOptimizer(decaying(optax.adamw), ("b1", "b2", "eps", "weight_decay"), unit_steps=True),
        "nadamw": RegisteredOptimizer(decaying(optax.nadamw), ("b1", "b2", "eps", "weight_decay"), unit_steps=True),
        "lamb": RegisteredOptimizer(decaying(optax.lamb), ("b1", "b2", "eps", "weight_decay")),
        "lion": RegisteredOptimizer(decaying(optax.lion), ("b1", "b2", "weight_decay"), unit_steps=True),
        "rmsprop": RegisteredOptimizer(plain(optax.rmsprop), ("eps", "momentum"), unit_steps=True),
        "muon": RegisteredOptimizer(muon, ("b1", "b2", "eps", "weight_decay")),
        "adafactor": RegisteredOptimizer(plain(optax.adafactor)),
    }
)


def stable_then_linear(peak: Any, final: Any, steps: int, config: OptimizerConfig) -> Schedule:
    """Returns the schedule that stays at the peak and falls linearly at the end (Hu et al. 2024, MiniCPM)."""
    if not 0 < config.decay_steps <= steps:
        expected = f"expected 1 to {steps}, the steps after the warm-up, such as {-(-steps // 10)}"
        raise UserError(f"optimizer.decay_steps: schedule 'wsd': {expected}; got {config.decay_steps}")
    at_peak = steps - config.decay_steps
    return lambda n: _between(peak, final, _passed(n - at_peak + 1, config.decay_steps + 1))


def _passed(n: Any, steps: int) -> jax.Array:
    """Returns how far step n is between the first of `steps` steps (0) and the last (1); 1 if there is only one."""
    return jnp.clip((n + 1 if steps == 1 else n) / max(steps - 1, 1), 0, 1)


def _between(first: Any, last: Any, share: jax.Array) -> jax.Array:
    return first * (1 - share) + last * share  # exact at both ends, as optax's schedules are not


# Each schedule: the learning rate by step, from (peak, final, n steps after the warm-up, the section). Steps count from
# 0 after the warm-up; the last one, n - 1, has the final rate.
SCHEDULES: Choices[Callable[[Any, Any, int, OptimizerConfig], Schedule]] = Choices(
    {
        "constant": lambda peak, final, steps, config: optax.constant_schedule(peak),
        "linear": lambda peak, final, steps, config: lambda n: _between(peak, final, _passed(n, steps)),
        # Along half a cosine (Loshchilov et al. 2017).
        "cosine": lambda peak, final, steps, config: (
            lambda n: _between(peak, final, (1 - jnp.cos(jnp.pi * _passed(n, steps))) / 2)
        ),
        # Falls with the square root of the steps (Vaswani et al. 2017).
        "inverse_sqrt": lambda peak, final, steps, config: (
            lambda n: peak / jnp.sqrt(1 + n / max(config.warmup_steps, 1))
        ),
        "wsd": stable_then_linear,
    }
)


def make_schedule(config: OptimizerConfig, steps: int, numbers: Mapping[str, Any] | None = None) -> Schedule:
    """Returns step -> learning rate: linear warm-up from 0 (0 itself is not used), then the schedule up to `steps`.

    Args:
      numbers: values that replace the config's by key, such as the arguments of a training step.
    """
    one_of(config.schedule, SCHEDULES, "optimizer.schedule")
    if config.warmup_steps >= steps:
        what = f"{config.warmup_steps} is not less than train.steps {steps}; set it to {steps // 10}"
        raise UserError(f"optimizer.warmup_steps: {what}, or train.steps above {config.warmup_steps}")
    values = {**arguments(config), **(numbers or {})}
    peak, final, warmup = values["learning_rate"], values["final_learning_rate"], config.warmup_steps
    scheduled = SCHEDULES[config.schedule](peak, final, steps - warmup, config)
    return lambda count: jnp.where(count < warmup, peak * (count + 1) / (warmup + 1), scheduled(count - warmup))


def make_optimizer(config: OptimizerConfig, steps: int, spec: Spec) -> optax.GradientTransformationExtraArgs:
    """Builds the optimizer for the weights of `spec` and a run of `steps` steps.

    Its `update` takes three more arguments: `numbers`, values that replace the config's for the keys of `arguments`;
    `norm`, the global norm of the gradient, if it is known; `step`, from 0, which sets the learning rate (without it,
    updates are counted). Others go on to the optimizer; `grad_fn` is wrapped, so that at the params that the optimizer
    sees it returns the gradient that it got. Whatever else is counted, as by Adam's bias correction, counts updates,
    and a skipped step makes none. (`optax.inject_hyperparams` would save the numbers in the state, and count updates.)
    """
    registered = OPTIMIZERS[one_of(config.name, OPTIMIZERS, "optimizer.name")]
    for name in sorted({name for each in OPTIMIZERS.values() for name in each.reads} - {*registered.reads}):
        readers = ", ".join(other for other, each in OPTIMIZERS.items() if name in each.reads)
        why = f"optimizer '{config.name}' does not read it (read by {readers})"
        require_off("optimizer", config, {name: getattr(OptimizerConfig, name)}, why)
    own_keys = [name for name in defaults(registered.config) if name not in defaults(OptimizerConfig)]
    some_frozen = has_frozen(spec, config.frozen)
    if not registered.unit_steps and any(has_own_rate(weight) for _, weight, _ in without_repeats(spec)):
        able = ", ".join(name for name, each in OPTIMIZERS.items() if each.unit_steps)
        what = "weights have a learning rate of their own, as with model.base_width"
        raise UserError(f"optimizer.name: {what}; expected one of {able}, got '{config.name}'")

    def built(numbers: Mapping[str, Any] = {}, norm: jax.Array | None = None, step: jax.Array | None = None) -> Any:
        schedule = make_schedule(config, steps, numbers)
        rate = schedule if step is None else optax.constant_schedule(schedule(step))
        keys = {name: numbers.get(name, getattr(config, name)) for name in (*registered.reads, *own_keys)}
        optimizer = optax.with_extra_args_support(registered.build(rate, spec, **keys))
        if config.clip_norm:
            # The gradient of frozen weights does not count.
            clip = functools.partial(clipped, max_norm=config.clip_norm, norm=None if some_frozen else norm)
            optimizer = optax.chain(optax.stateless(lambda updates, _: clip(updates)), optimizer)
        if some_frozen:
            optimizer = freeze(optimizer, spec, config.frozen)
        optimizer = at_own_rates(optimizer, spec)
        return averaging(optimizer, config.ema_decay) if config.ema_decay else optimizer

    def gradient_at(grad_fn: Callable, params: Any, *number: Any) -> Any:
        gradient = grad_fn(unscaled_params(spec, params), *number)
        return clipped(gradient, config.clip_norm) if config.clip_norm else gradient

    def update(updates: Any, state: Any, params: Any = None, **others: Any) -> tuple[Any, Any]:
        ours = {name: others.pop(name) for name in ("numbers", "norm", "step") if name in others}
        if "grad_fn" in others:
            others["grad_fn"] = functools.partial(gradient_at, others["grad_fn"])
        return built(**ours).update(updates, state, params, **others)

    return optax.GradientTransformationExtraArgs(built().init, update)


def clipped(updates: optax.Updates, max_norm: float, norm: jax.Array | None = None) -> optax.Updates:
    """Scales the updates down to a global norm by one factor; optax divides, in a pass over each array.

    Args:
      norm: the global norm of the updates, if it is known.
    """
    known = optax.tree.norm(updates) if norm is None else norm
    return optax.tree.scale(max_norm / jnp.maximum(known, max_norm), updates)
