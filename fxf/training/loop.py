"""The training loop: calls of several steps, with records, evaluations and checkpoints between them."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from fxf.config import CheckpointConfig, LogConfig, TrainConfig
from fxf.errors import UserError
from fxf.training.checkpoint import Checkpoints, rank
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
    position: Callable[[], Any],
    earlier: dict[str, Any],
) -> tuple[TrainState, dict[str, Any]]:
    """Trains to `train.steps` from the step that `state` has reached.

    Args:
      evaluate: returns the figures of the validation.
      position: returns where the data stand, as JSON.
      earlier: the record saved with `state`, or an empty one.

    Tokens are counted, also those of a second, as the loss counts them: by their weight.

    Returns:
      The last state, and the record saved with it: the last figures of training and evaluation, the steps at which
      the best evaluation was reached and training stopped for want of a better one, tokens and seconds.

    Raises:
      UserError: the loss is not finite. Nothing of that call is saved.
    """
    step = int(state.step)
    record, tokens, stopped = earlier, earlier.get("tokens", 0.0), earlier.get("stopped", False)
    best: tuple[float, int] = tuple(earlier.get("best", (-float("inf"), 0)))
    while step < train.steps and not stopped:
        n = _until_next(step, train.steps, (log.every, train.evaluate_every, checkpoint.every))
        before = clock.seconds()["train"]
        with clock.measure("train"):
            state, arrays = train_steps(state, np.int32(n))
            history = {name: np.asarray(values)[:n] for name, values in jax.device_get(arrays).items()}
        seconds = clock.seconds()["train"] - before  # without what a first batch of its shape takes to compile
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
        if _due(step, train.evaluate_every):
            with clock.measure("evaluate"):
                evaluated = evaluate(state)
            metrics_log.record(step, evaluated)
            metrics_log.say(f"step {step}  " + "  ".join(f"{k} {v:g}" for k, v in evaluated.items()))
        if checkpoint.best and evaluated:
            best = max(best, (rank(evaluated, checkpoint.best), step), key=lambda found: found[0])
            stopped = train.patience > 0 and step - best[1] >= train.patience * train.evaluate_every
        record = {
            "step": step,
            "train_loss": trained["loss"],
            "evaluated": evaluated,
            **({"best": best, "stopped": stopped} if checkpoint.best else {}),
            "tokens": tokens,
            "data": position(),
            "seconds": clock.seconds(),
        }
        if _due(step, checkpoint.every) or step == train.steps or stopped or (checkpoint.best and evaluated):
            checkpoints.save(step, state, evaluated, record)
    return state, record


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


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
