"""The training loop: calls of several steps each, with records, evaluations and checkpoints between them."""

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import jax
import numpy as np

from fxf.errors import DivergedError, Interrupted, UserError
from fxf.machine import memory, signals
from fxf.training import processes
from fxf.training.checkpoint import CheckpointConfig
from fxf.training.checkpoint_files import rank
from fxf.training.log import Clock, LogConfig, MetricsLog
from fxf.training.state import TrainState
from fxf.training.step import STEP_METRICS, Metrics, TrainConfig

CALL_SECONDS = 1.0  # duration of a call; the loop checks for signals between calls
STEPS_AT_ONCE = 2**16  # maximum of steps in a call, whose metrics are arrays of that size
PROFILED_STEPS = 3  # maximum of steps in a trace

Traced = Callable[[], AbstractContextManager]


@dataclasses.dataclass
class Record:
    """The progress of a run and its last figures, saved with a state.

    Attributes:
      step: number of steps done.
      train_loss: loss of the steps since the record before; None before the first step.
      evaluated: figures of this step's evaluation, if there was one.
      best: rank and step of the best evaluation, if `checkpoint.best` names a metric.
      stopped: whether training stopped because evaluations no longer improved.
      tokens: sum of the weights of the tokens that training has read.
      skipped: number of steps whose loss or gradient was not finite, and which changed nothing.
      data: position in the data, as JSON.
      seconds: seconds spent by purpose.
    """

    step: int = 0
    train_loss: float | None = None
    evaluated: dict[str, float] = dataclasses.field(default_factory=dict)
    best: tuple[float, int] | None = None
    stopped: bool = False
    tokens: float = 0.0
    skipped: int = 0
    data: Any = None
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)


_TYPES = {"step": int, "evaluated": dict, "stopped": bool, "tokens": float | int, "skipped": int, "seconds": dict}


def record_of(saved: dict[str, Any]) -> Record:
    """Returns the record that was saved with a checkpoint. Raises a UserError if it has other parts."""
    for name in {**vars(Record()), **saved}:
        right = name in saved and hasattr(Record(), name) and isinstance(saved[name], _TYPES.get(name, object))
        if not right:
            raise UserError(f"the checkpoint's record has another '{name}': it was changed, or saved by another fxf")
    return Record(**saved)


class Calls(NamedTuple):
    """The functions that the loop calls.

    Attributes:
      train_steps: `train_steps(state, n) -> (state, metrics)` takes n steps.
      learning_rate: returns the learning rate of a step.
      evaluate: returns the figures of a state's validation.
      save: `save(state, record)` starts to write a checkpoint, and waits for the one before.
      wait: waits until the newest checkpoint is in its place.
      position: returns the position in the data, as JSON.
      interrupted: returns whether to stop, the same in every process. The loop calls it about once a second.
      traced: returns a context that traces a few steps after the first record; None traces nothing.
      advance: receives the number of steps that each call took.
    """

    train_steps: Callable[[TrainState, Any], tuple[TrainState, Metrics]]
    learning_rate: Callable[[int], Any]
    evaluate: Callable[[TrainState], dict[str, float]]
    save: Callable[[TrainState, Record], None]
    wait: Callable[[], None]
    position: Callable[[], Any]
    interrupted: Callable[[], bool]
    traced: Traced | None = None
    advance: Callable[[int], None] = lambda n: None


class Intervals(NamedTuple):
    """The config sections that set the length of training and the intervals of its tasks."""

    train: TrainConfig
    checkpoint: CheckpointConfig
    log: LogConfig

    def ends(self, record: Record) -> bool:
        return record.step >= self.train.steps or record.stopped

    def until_next(self, step: int) -> int:
        """Returns the number of steps from `step` to the next record, evaluation, checkpoint or end."""
        intervals = (self.log.every, self.train.evaluate_every, self.checkpoint.every)
        return min([self.train.steps - step] + [every - step % every for every in intervals if every])

    def require_profile(self, step: int) -> None:
        """Raises a UserError if no step is left to trace after the next record from `step`."""
        if step + self.until_next(step) >= self.train.steps:
            raise UserError(
                f"--profile: traces steps after the next record, which is at the last step, {self.train.steps}; "
                f"make log.every smaller (it is {self.log.every}) or train.steps larger"
            )

    def evaluation_is_missing(self, record: Record) -> bool:
        """Returns whether the run stopped during the evaluation of the step of `record`."""
        return record.step > 0 and _due(record.step, self.train.evaluate_every) and not record.evaluated


def fit(
    state: TrainState, record: Record, calls: Calls, intervals: Intervals, metrics_log: MetricsLog, clock: Clock
) -> tuple[TrainState, Record]:
    """Trains from the step of `state` to `train.steps`.

    A run that is interrupted between two records saves its step. When it resumes, the figures of the next record cover
    only the steps since. An interrupted evaluation is abandoned, unless other processes take part in it; a resumed run
    begins with it.

    Args:
      record: the record saved with `state`, or a new one.

    Returns:
      The last state, and the record saved with it.

    Raises:
      UserError: the loss is not finite more often than `train.skip_nonfinite` allows. Nothing since the last
        checkpoint is saved.
      Interrupted: `interrupted` returned True; the step reached is saved.
    """
    saved, at_once, abandoned, n_logged = record.step, 1, False, 0
    missing = intervals.evaluation_is_missing(record)
    while missing or not (intervals.ends(record) or abandoned):
        if not missing:
            n = intervals.until_next(record.step)
            before = clock.seconds()["train"]
            traced = calls.traced if n_logged == 1 else None  # all has been compiled then
            state, history, at_once = _train(state, calls, n, clock, at_once, traced)
            if not history:
                break
            seconds = clock.seconds()["train"] - before  # without compiling for new batch shapes
            record = _after(record, history, intervals.train.skip_nonfinite)
            if len(history["loss_sum"]) == n:
                _log_training(record, history, seconds, float(calls.learning_rate(record.step - 1)), metrics_log)
                n_logged += 1
        evaluated: dict[str, float] = {}
        if _due(record.step, intervals.train.evaluate_every):
            found = _evaluate(state, calls, clock)
            abandoned, evaluated = found is None, found or {}
            if found is not None:
                metrics_log.record(record.step, evaluated, "validation")
                metrics_log.print_line(f"step {record.step}  " + "  ".join(f"{k} {v:g}" for k, v in evaluated.items()))
        record = _judged(record, evaluated, intervals)
        record = dataclasses.replace(record, data=calls.position(), seconds=clock.seconds())
        best_may_change = bool(intervals.checkpoint.best and evaluated)
        due = _due(record.step, intervals.checkpoint.every) or intervals.ends(record) or best_may_change
        if due or missing or calls.interrupted():
            calls.save(state, record)
            saved = record.step
        missing = False
    if abandoned or not intervals.ends(record):
        if saved < record.step:
            calls.save(state, record)
        calls.wait()
        raise Interrupted(f"stopped at step {record.step}, which is saved; the same command resumes from there")
    calls.wait()
    signals.release()
    return state, record


def _train(
    state: TrainState, calls: Calls, n: int, clock: Clock, at_once: int, traced: Traced | None
) -> tuple[TrainState, dict[str, np.ndarray], int]:
    """Takes n steps, or fewer if interrupted, in calls of about a second; the first call takes `at_once` steps.

    Args:
      traced: returns a context for the first call, which then takes few steps. Its own time does not count as training.

    Returns:
      The state, the metrics of the steps (empty without a step), and the number of steps for the next call.
    """
    parts, done = [], 0
    while done < n and not calls.interrupted():
        several, before = min(at_once, n - done), clock.seconds()["train"]
        context: AbstractContextManager = nullcontext()
        if traced and not done:
            several, context = min(several, PROFILED_STEPS), traced()
        with context, clock.measure("train"):
            state, arrays = calls.train_steps(state, np.int32(several))
            parts.append({name: np.asarray(values)[:several] for name, values in jax.device_get(arrays).items()})
        signals.hold("the steps since the newest checkpoint are not saved")
        at_once = processes.of_first(steps_of_next_call(several, clock.seconds()["train"] - before))
        done += several
        calls.advance(several)
    return state, {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}, at_once


def steps_of_next_call(steps: int, seconds: float) -> int:
    """Returns how many steps take a second, if so many took `seconds`: at most twice as many."""
    return max(1, min(2 * steps, STEPS_AT_ONCE, int(CALL_SECONDS * steps / max(seconds, 1e-9))))


def _after(record: Record, history: dict[str, np.ndarray], may_skip: int) -> Record:
    """Returns the record after the steps of `history`, whose loss leaves out skipped steps."""
    skipped = record.skipped + _zero_nonfinite(history, record.step, may_skip - record.skipped)
    weight = float(history["weight_sum"].sum(dtype=np.float64))
    loss = float(history["loss_sum"].sum(dtype=np.float64)) / weight if weight else 0.0
    step, tokens = record.step + len(history["loss_sum"]), record.tokens + weight
    return dataclasses.replace(record, step=step, train_loss=loss, tokens=tokens, skipped=skipped)


def _log_training(
    record: Record, history: dict[str, np.ndarray], seconds: float, learning_rate: float, metrics_log: MetricsLog
) -> None:
    assert record.train_loss is not None
    trained = {
        "loss": record.train_loss,
        "gradient_norm": float(history["gradient_norm"].mean()),
        "learning_rate": learning_rate,
        "steps_per_second": len(history["loss_sum"]) / seconds,
        "tokens_per_second": float(history["weight_sum"].sum(dtype=np.float64)) / seconds,
        **memory.held_on_a_device(),
    }
    if "data_seconds" in history:
        trained["data_seconds_per_step"] = float(history["data_seconds"].mean())
    if "seconds_at_peak" in history:
        trained["mfu"] = float(history["seconds_at_peak"].sum()) / seconds
    metrics_log.record(record.step, trained)
    metrics_log.show(record.step, trained)


def _evaluate(state: TrainState, calls: Calls, clock: Clock) -> dict[str, float] | None:
    """Returns the figures of the validation, or None if a signal ended it.

    One of several processes cannot end it, because the others would wait.
    """
    try:
        with signals.abandoning() if jax.process_count() == 1 else nullcontext(), clock.measure("evaluate"):
            return calls.evaluate(state)
    except signals.Abandoned:
        return None


def _judged(record: Record, evaluated: dict[str, float], intervals: Intervals) -> Record:
    """Returns the record with this step's evaluation, the best one so far, and whether patience ended."""
    name, train = intervals.checkpoint.best, intervals.train
    if not (name and evaluated):
        return dataclasses.replace(record, evaluated=evaluated)
    found = (rank(evaluated, name), record.step)
    best = found if record.best is None or found[0] > record.best[0] else record.best
    stopped = train.patience > 0 and record.step - best[1] >= train.patience * train.evaluate_every
    return dataclasses.replace(record, evaluated=evaluated, best=best, stopped=stopped)


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def _zero_nonfinite(history: dict[str, np.ndarray], step: int, allowed: int) -> int:
    """Returns the number of steps whose loss or gradient is not finite, and sets their metrics in `history` to 0.

    Raises:
      DivergedError: there are more such steps than allowed.
    """
    bad = ~(np.isfinite(history["loss_sum"]) & np.isfinite(history["gradient_norm"]))
    if bad.sum() > allowed:
        last = int(np.flatnonzero(bad)[allowed])
        raise DivergedError(
            f"step {step + last + 1}: the loss is {history['loss_sum'][last]} and the gradient's norm "
            f"{history['gradient_norm'][last]}; training stopped, checkpoints of earlier steps are kept. "
            "A lower optimizer.learning_rate or an optimizer.clip_norm may help."
        )
    for name in STEP_METRICS:
        history[name] = np.where(bad, 0, history[name])
    return int(bad.sum())
