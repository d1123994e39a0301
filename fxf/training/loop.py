"""The training loop: calls of several steps, with records, evaluations and checkpoints between them."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import jax
import numpy as np

from fxf.errors import Interrupted, UserError
from fxf.machine import signals
from fxf.training import processes
from fxf.training.checkpoint import CheckpointConfig, rank
from fxf.training.metrics import Clock, LogConfig, MetricsLog
from fxf.training.step import Metrics, TrainConfig, TrainState

CALL_SECONDS = 1.0  # of training at once, so that a signal is soon heard
STEPS_AT_ONCE = 2**16  # at most, for a call's metrics are arrays of that size


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
    save: Callable[[int, TrainState, dict[str, Any]], None],
    clock: Clock,
    position: Callable[[], Any],
    earlier: dict[str, Any],
    interrupted: Callable[[], bool],
) -> tuple[TrainState, dict[str, Any]]:
    """Trains to `train.steps` from the step that `state` has reached.

    Args:
      evaluate: returns the figures of the validation.
      save: `save(step, state, record)` makes a checkpoint.
      position: returns where the data stand, as JSON.
      earlier: the record saved with `state`, or an empty one.
      interrupted: tells whether to stop, every process the same; it is asked about once a second. The figures of a
        run that goes on after it stopped between two records are of the steps since. An evaluation is abandoned, unless
        other processes take part in it; it comes first when the run goes on.

    Tokens are counted, also those of a second, as the loss counts them: by their weight.

    Returns:
      The last state, and the record saved with it: the last figures of training and evaluation, the steps at which
      the best evaluation was reached and training stopped for want of a better one, tokens and seconds.

    Raises:
      UserError: the loss is not finite, more often than `train.skip_nonfinite` allows. Nothing since the last
        checkpoint is saved.
      Interrupted: `interrupted` told so; the step reached is saved.
    """
    step = saved = int(state.step)
    record, tokens, stopped = earlier, earlier.get("tokens", 0.0), earlier.get("stopped", False)
    skipped = earlier.get("skipped", 0)
    best: tuple[float, int] = tuple(earlier.get("best", (-float("inf"), 0)))
    train_loss = earlier.get("train_loss")
    at_once, abandoned = 1, False
    missing = evaluation_is_missing(step, earlier, train)
    while missing or (step < train.steps and not stopped and not abandoned):
        if not missing:
            n = _until_next(step, train.steps, (log.every, train.evaluate_every, checkpoint.every))
            before = clock.seconds()["train"]
            state, calls, at_once = _train(state, train_steps, n, clock, interrupted, at_once)
            if not calls:
                break
            # Without what a first batch of its shape takes to compile.
            seconds = clock.seconds()["train"] - before
            history = {name: np.concatenate([call[name] for call in calls]) for name in calls[0]}
            done = len(history["loss_sum"])
            skipped += _not_finite(history, step, train.skip_nonfinite - skipped)
            step += done
            weight = float(history["weight_sum"].sum(dtype=np.float64))
            tokens += weight
            train_loss = float(history["loss_sum"].sum(dtype=np.float64)) / weight if weight else 0.0
            trained = {
                "loss": train_loss,
                "gradient_norm": float(history["gradient_norm"].mean()),
                "learning_rate": float(learning_rate(step - 1)),
                "steps_per_second": done / seconds,
                "tokens_per_second": weight / seconds,
            }
            if done == n:
                metrics_log.record(step, trained)
                metrics_log.show(step, trained)
        evaluated: dict[str, float] = {}
        if _due(step, train.evaluate_every):
            try:
                # Of several processes none can leave the others alone in an evaluation.
                with signals.abandoning() if jax.process_count() == 1 else nullcontext(), clock.measure("evaluate"):
                    evaluated = evaluate(state)
            except signals.Abandoned:
                abandoned, evaluated = True, {}
            else:
                metrics_log.record(step, evaluated)
                metrics_log.say(f"step {step}  " + "  ".join(f"{k} {v:g}" for k, v in evaluated.items()))
        if checkpoint.best and evaluated:
            best = max(best, (rank(evaluated, checkpoint.best), step), key=lambda found: found[0])
            stopped = train.patience > 0 and step - best[1] >= train.patience * train.evaluate_every
        record = {
            "step": step,
            "train_loss": train_loss,
            "evaluated": evaluated,
            **({"best": best, "stopped": stopped} if checkpoint.best else {}),
            "tokens": tokens,
            "skipped": skipped,
            "data": position(),
            "seconds": clock.seconds(),
        }
        due = _due(step, checkpoint.every) or step == train.steps or stopped or (checkpoint.best and evaluated)
        if due or missing or interrupted():
            save(step, state, record)
            saved = step
        missing = False
    if abandoned or (step < train.steps and not stopped):
        if saved < step:
            save(step, state, record)
        raise Interrupted(f"stopped at step {step}, which is saved; the same command goes on from there")
    signals.release()
    return state, record


def evaluation_is_missing(step: int, record: Mapping[str, Any], train: TrainConfig) -> bool:
    """Tells whether a run was stopped during the evaluation of the step that `record` was saved with."""
    return bool(record) and _due(step, train.evaluate_every) and not record["evaluated"]


def _train(
    state: TrainState,
    train_steps: Callable[[TrainState, Any], tuple[TrainState, Metrics]],
    n: int,
    clock: Clock,
    interrupted: Callable[[], bool],
    at_once: int,
) -> tuple[TrainState, list[dict[str, np.ndarray]], int]:
    """Takes n steps, or fewer if interrupted, in calls of about a second; the first is of `at_once` steps.

    Returns:
      The state, the metrics of each call, and the number of steps for the next one.
    """
    calls, done = [], 0
    while done < n and not interrupted():
        several, before = min(at_once, n - done), clock.seconds()["train"]
        with clock.measure("train"):
            state, arrays = train_steps(state, np.int32(several))
            calls.append({name: np.asarray(values)[:several] for name, values in jax.device_get(arrays).items()})
        signals.hold("the steps since the newest checkpoint are not saved")
        a_step = (clock.seconds()["train"] - before) / several
        at_once = processes.first_says(max(1, min(2 * several, STEPS_AT_ONCE, int(CALL_SECONDS / max(a_step, 1e-9)))))
        done += several
    return state, calls, at_once


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def _until_next(step: int, last: int, intervals: tuple[int, ...]) -> int:
    """Returns the steps from `step` to the next multiple of an interval, or to the last step."""
    return min([last - step] + [every - step % every for every in intervals if every])


def _not_finite(history: dict[str, np.ndarray], step: int, allowed: int) -> int:
    """Returns how many steps had a loss or gradient that is not finite, and takes their loss out of the sums.

    Raises:
      UserError: they are more than allowed.
    """
    bad = ~(np.isfinite(history["loss_sum"]) & np.isfinite(history["gradient_norm"]))
    if bad.sum() > allowed:
        last = int(np.flatnonzero(bad)[allowed])
        raise UserError(
            f"step {step + last + 1}: the loss is {history['loss_sum'][last]} and the gradient's norm "
            f"{history['gradient_norm'][last]}; training stopped, checkpoints of earlier steps are kept. "
            "A lower optimizer.learning_rate or an optimizer.clip_norm may help."
        )
    for name in ("loss_sum", "weight_sum", "gradient_norm"):
        history[name] = np.where(bad, 0, history[name])
    return int(bad.sum())
