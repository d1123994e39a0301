"""The training loop: calls of several steps, with records, evaluations and checkpoints between them."""

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from fxf.config import CheckpointConfig, LogConfig, TrainConfig
from fxf.errors import UserError
from fxf.training.checkpoint import Checkpoints
from fxf.training.metrics import Clock, MetricsLog
from fxf.training.step import Metrics, TrainState


def fit(
    state: TrainState,
    train_steps: Callable[[TrainState, Any], tuple[TrainState, Metrics]],
    *,
    train: TrainConfig,
    checkpoint: CheckpointConfig,
    log: LogConfig,
    learning_rate: Callable[[int], Any],
    evaluate: Callable[[TrainState], dict[str, float]],
    metrics_log: MetricsLog,
    checkpoints: Checkpoints,
    clock: Clock,
    earlier: dict[str, Any],
) -> tuple[TrainState, dict[str, Any]]:
    """Trains to `train.steps` from the step that `state` has reached.

    Args:
      earlier: the record saved with `state`, or an empty one.

    Tokens are counted, also those of a second, as the loss counts them: by their weight.

    Returns:
      The last state, and the record saved with it: the last figures of training and evaluation, tokens and seconds.

    Raises:
      UserError: the loss is not finite. Nothing of that call is saved.
    """
    step = int(state.step)
    record, tokens = earlier, earlier.get("tokens", 0.0)
    while step < train.steps:
        n = _until_next(step, train.steps, (log.every, train.evaluate_every, checkpoint.every))
        with clock.measure("train"):
            before = time.perf_counter()
            state, arrays = train_steps(state, np.int32(n))
            history = {name: np.asarray(values)[:n] for name, values in jax.device_get(arrays).items()}
            seconds = time.perf_counter() - before
        _require_finite(history, step)
        step += n
        weight = float(history["weight_sum"].sum(dtype=np.float64))
        tokens += weight
        trained = {
            "loss": float(history["loss_sum"].sum(dtype=np.float64)) / weight if weight else 0.0,
            "gradient_norm": float(history["gradient_norm"].mean()),
            "learning_rate": float(learning_rate(step - 1)),
            "steps_per_second": n / seconds,
            "tokens_per_second": weight / seconds,
        }
        metrics_log.record(step, trained)
        metrics_log.show(step, trained)
        evaluated: dict[str, float] = {}
        if _due(step, train.evaluate_every, train.steps):
            with clock.measure("evaluate"):
                evaluated = evaluate(state)
            metrics_log.record(step, evaluated)
            metrics_log.say(f"step {step}  " + "  ".join(f"{k} {v:g}" for k, v in evaluated.items()))
        record = {"train_loss": trained["loss"], "evaluated": evaluated, "tokens": tokens, "seconds": clock.seconds()}
        if _due(step, checkpoint.every, train.steps) or (checkpoint.best and evaluated):
            checkpoints.save(step, state, evaluated, record)
    return state, record


def _due(step: int, every: int, last: int) -> bool:
    return step == last or (every > 0 and step % every == 0)


def _until_next(step: int, last: int, intervals: tuple[int, ...]) -> int:
    """Returns the steps from `step` to the next multiple of an interval, or to the last step."""
    return min([last - step] + [every - step % every for every in intervals if every])


def _require_finite(history: dict[str, np.ndarray], step: int) -> None:
    bad = ~(np.isfinite(history["loss_sum"]) & np.isfinite(history["gradient_norm"]))
    if bad.any():
        first = int(bad.argmax())
        raise UserError(
            f"step {step + first + 1}: the loss is {history['loss_sum'][first]} and the gradient's norm "
            f"{history['gradient_norm'][first]}; training stopped, checkpoints of earlier steps are kept. "
            "A lower optimizer.learning_rate or an optimizer.clip_norm may help."
        )
