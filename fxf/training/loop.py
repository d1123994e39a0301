"""The training loop: calls of several steps each, with records, evaluations and checkpoints between them."""

import dataclasses
import functools
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import jax
import numpy as np

from fxf.errors import Interrupted, UserError
from fxf.machine import memory, signals
from fxf.training import processes
from fxf.training.checkpoint import CheckpointConfig
from fxf.training.checkpoint_files import rank
from fxf.training.log import Clock, LogConfig, MetricsLog
from fxf.training.record import Record, after
from fxf.training.state import TrainState
from fxf.training.step import Metrics, TrainConfig

CALL_SECONDS = 1.0  # duration of a call; the loop checks for signals between calls
STEPS_AT_ONCE = 2**16  # maximum of steps in a call, whose metrics are arrays of that size
PROFILED_STEPS = 3  # maximum of steps in a trace

Traced = Callable[[], AbstractContextManager]


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

    It saves every `checkpoint.every` steps, after `checkpoint.minutes` by the first process's clock, at a validation
    (with `checkpoint.best`, at one that no earlier one surpasses), at the end, and when it is interrupted. A record of
    training covers all steps since the one before, also where the run was resumed between them. An interrupted
    evaluation is abandoned, unless other processes take part in it; a resumed run begins with it.

    Args:
      record: the record saved with `state`, or a new one.

    Returns:
      The last state, and the record saved with it.

    Raises:
      UserError: the loss is not finite more often than `train.skip_nonfinite` allows. Nothing since the last
        checkpoint is saved.
      Interrupted: `interrupted` returned True; the step reached is saved.
    """
    saved, saved_at, at_once, abandoned, n_logged = record.step, time.monotonic(), 1, False, 0
    minutes = intervals.checkpoint.minutes
    missing = intervals.evaluation_is_missing(record)
    while missing or not (intervals.ends(record) or abandoned):
        if not missing:
            n = intervals.until_next(record.step)
            before = clock.seconds()["train"]  # which leaves out compiling for new batch shapes
            traced = calls.traced if n_logged == 1 else None  # all has been compiled then
            by_clock = functools.partial(_due_by_clock, minutes, saved_at)
            state, history, at_once = _train(state, calls, n, clock, at_once, traced, by_clock)
            if not history:
                break
            record = after(record, history, clock.seconds()["train"] - before, intervals.train.skip_nonfinite)
            if len(history["loss_sum"]) == n:
                record = _logged(record, float(calls.learning_rate(record.step - 1)), metrics_log)
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
        due = _due(record.step, intervals.checkpoint.every) or intervals.ends(record)
        due = due or _is_worth_a_save(record, intervals.checkpoint.best) or _due_by_clock(minutes, saved_at)
        if due or missing or calls.interrupted():
            calls.save(state, record)
            saved, saved_at = record.step, time.monotonic()
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
    state: TrainState,
    calls: Calls,
    n: int,
    clock: Clock,
    at_once: int,
    traced: Traced | None,
    by_clock: Callable[[], bool],
) -> tuple[TrainState, dict[str, np.ndarray], int]:
    """Takes n steps, or fewer if interrupted, in calls of about a second; the first call takes `at_once` steps.

    Args:
      traced: returns a context for the first call, which then takes few steps. Its own time does not count as training.
      by_clock: returns whether a checkpoint is due, for which it ends early too.

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
        if by_clock():
            break
    return state, {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}, at_once


def steps_of_next_call(steps: int, seconds: float) -> int:
    """Returns how many steps take a second, if so many took `seconds`: at most twice as many."""
    return max(1, min(2 * steps, STEPS_AT_ONCE, int(CALL_SECONDS * steps / max(seconds, 1e-9))))


def _due_by_clock(minutes: float, saved_at: float) -> bool:
    """Returns whether so many minutes have passed since `saved_at`, as the first process's clock says for all."""
    return minutes > 0 and bool(processes.of_first(int(time.monotonic() - saved_at >= 60 * minutes)))


def _is_worth_a_save(record: Record, best: str) -> bool:
    """Returns whether this step has an evaluation; with `checkpoint.best`, one that no earlier one surpasses."""
    if not (best and record.best):
        return bool(record.evaluated)
    return bool(record.evaluated) and rank(record.evaluated, best) == record.best[0]


def _logged(record: Record, learning_rate: float, metrics_log: MetricsLog) -> Record:
    """Writes a record of training about the steps since the one before, and returns the progress after it."""
    sums = record.unlogged
    loss = sums["loss_sum"] / sums["weight_sum"] if sums["weight_sum"] else 0.0
    trained = {
        "loss": loss,
        "gradient_norm": sums["gradient_norm"] / sums["steps"],
        "learning_rate": learning_rate,
        "steps_per_second": sums["steps"] / sums["seconds"],
        "tokens_per_second": sums["weight_sum"] / sums["seconds"],
        **memory.held_on_a_device(),
    }
    if "data_seconds" in sums:
        trained["data_seconds_per_step"] = sums["data_seconds"] / sums["steps"]
    if "seconds_at_peak" in sums:
        trained["mfu"] = sums["seconds_at_peak"] / sums["seconds"]
    metrics_log.record(record.step, trained)
    metrics_log.show(record.step, trained)
    return dataclasses.replace(record, train_loss=loss, unlogged={})


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
