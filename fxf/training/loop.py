"""The training loop: calls of several steps each, with records, evaluations and checkpoints between them."""

import dataclasses
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import jax
import numpy as np

from fxf.base import memory, signals
from fxf.base.errors import Interrupted
from fxf.base.named_arrays import OF_TRAINING
from fxf.base.status import stage
from fxf.training import processes
from fxf.training.checkpoint import CheckpointConfig, Checkpoints, rank
from fxf.training.hang import watched
from fxf.training.log import Clock, LogConfig, MetricsLog, goodput
from fxf.training.record import Record, add_steps
from fxf.training.state import TrainState
from fxf.training.step import TrainConfig

CALL_SECONDS = 1.0  # duration of a call; the loop checks for signals between calls
STEPS_AT_ONCE = 2**16  # maximum of steps in a call, whose metrics are arrays of that size


class Intervals(NamedTuple):
    """The config sections that set the length of training and the intervals of its tasks, and whether to profile."""

    train: TrainConfig
    checkpoint: CheckpointConfig
    log: LogConfig
    profile: bool = False

    def end(self, record: Record) -> bool:
        return record.step >= self.train.steps or record.stopped

    def unranked(self) -> str:
        """Returns a line if `checkpoint.best` ranks validations but none will come, else ""."""
        none = self.checkpoint.best and self.train.evaluate_every > self.train.steps
        return "checkpoint.best: no validation comes before the last step, which is used" if none else ""

    def until_next(self, step: int) -> int:
        """Returns the number of steps from `step` to the next record, evaluation, checkpoint or end."""
        intervals = (self.log.every, self.train.evaluate_every, self.checkpoint.every)
        return min([self.train.steps - step] + [every - step % every for every in intervals if every])


def fit(
    state: TrainState,
    record: Record,
    steps: Any,
    evaluate: Callable[[TrainState], dict[str, float]],
    checkpoints: Checkpoints,
    intervals: Intervals,
    log: MetricsLog,
    clock: Clock,
) -> Record:
    """Trains from the step of `state` to `train.steps`, and returns the record saved with the last state.

    It saves every `checkpoint.every` steps, after `checkpoint.minutes` by the first process's clock, at a validation
    (with `checkpoint.best`, at one that no earlier one surpasses), at the end, and when it is asked to stop. A record
    of training covers all steps since the one before, also where the run was resumed between them.

    Args:
      record: the record saved with `state`, or a new one.
      steps: a run's `Steps` (fxf/runs/run.py): `train(state, n)`, `learning_rate(step)`, `position()`.
      evaluate: returns the metrics of a state's validation.

    Raises:
      UserError: the loss is not finite more often than `train.skip_nonfinite` allows. Nothing since the last
        checkpoint is saved.
      Interrupted: a signal came to any process; the step reached is saved.
    """
    saved_at, at_once, n_calls, slowest = time.monotonic(), 1, 0, 0.0
    with stage("training", intervals.train.steps, record.step) as progress:
        while not intervals.end(record):
            left = intervals.until_next(record.step)
            n, before = min(at_once, left), clock.seconds()["train"]
            # The second call has one step or two, whose program is compiled unless a batch has another shape.
            tracing = log.traced() if intervals.profile and n_calls == 1 else nullcontext()
            with tracing, clock.measure("train"), watched(record.step, n * slowest, intervals.log.hang):
                state, arrays = steps.train(state, np.int32(n))
                history = {name: np.asarray(values)[:n] for name, values in jax.device_get(arrays).items()}
            signals.hold()  # the steps since the newest checkpoint are unsaved
            seconds = clock.seconds()["train"] - before  # without compiling for new batch shapes
            slowest = max(slowest, seconds / n)
            clock.wait(float(np.sum(history.get("data_seconds", 0.0))))
            at_once = processes.of_first(steps_of_next_call(n, seconds))
            record = add_steps(record, history, seconds, intervals.train.skip_nonfinite)
            progress(record.step)
            if n == left:
                record = _logged(record, float(steps.learning_rate(record.step - 1)), log, clock.seconds())
            n_calls += 1
            record = _evaluated(state, record, evaluate, intervals, log, clock)
            record = dataclasses.replace(record, data=steps.position(), seconds=clock.seconds())
            stopping = processes.any_of(signals.asked())
            if _is_to_be_saved(record, saved_at, intervals) or stopping:
                log.publish()
                checkpoints.save(record.step, state, dataclasses.asdict(record))
                saved_at = time.monotonic()
            if stopping and not intervals.end(record):
                checkpoints.wait()
                raise Interrupted(f"stopped at step {record.step}, which is saved; the same command resumes from there")
        checkpoints.wait()
    signals.release()
    return record


def steps_of_next_call(steps: int, seconds: float) -> int:
    """Returns how many steps fit into CALL_SECONDS if `steps` took `seconds`; at most twice as many."""
    return max(1, min(2 * steps, STEPS_AT_ONCE, int(CALL_SECONDS * steps / max(seconds, 1e-9))))


def _evaluated(
    state: TrainState, record: Record, evaluate: Callable, intervals: Intervals, log: MetricsLog, clock: Clock
) -> Record:
    """Returns the record with a validation, if one is due, the best one so far, and whether training stops early."""
    every, name, patience = intervals.train.evaluate_every, intervals.checkpoint.best, intervals.train.patience
    if not every or record.step % every:
        return dataclasses.replace(record, evaluated={})
    with clock.measure("evaluate"):
        evaluated = evaluate(state)
    log.record(record.step, evaluated, "validation")
    shown = (f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}" for key, value in evaluated.items())
    log.print_lines(f"step {record.step}  " + "  ".join(shown))
    if not name:
        return dataclasses.replace(record, evaluated=evaluated)
    ranked = (rank(evaluated, name), record.step)
    best = ranked if record.best is None or ranked[0] > record.best[0] else record.best
    stopped = patience > 0 and record.step - best[1] >= patience * every
    return dataclasses.replace(record, evaluated=evaluated, best=best, stopped=stopped)


def _is_to_be_saved(record: Record, saved_at: float, intervals: Intervals) -> bool:
    """Returns whether a save is due: by steps, at the end, after a validation, or by the first process's clock.

    With `checkpoint.best`, a validation is saved only if no earlier one surpasses it.
    """
    config = intervals.checkpoint
    surpassed = config.best and record.best and rank(record.evaluated, config.best) < record.best[0]
    validated = record.evaluated and not surpassed
    if validated or intervals.end(record) or (config.every and record.step % config.every == 0):
        return True
    too_old = time.monotonic() - saved_at >= 60 * config.minutes
    return config.minutes > 0 and bool(processes.of_first(int(too_old)))


def _logged(record: Record, learning_rate: float, log: MetricsLog, seconds: dict[str, float]) -> Record:
    """Writes a record of the steps since the last one, and returns the progress after it."""
    sums = record.unlogged
    loss, taken = sums["loss_sum"] / (sums["weight_sum"] or np.nan), sums["taken"] or np.nan
    trained = {
        "loss": loss,
        "gradient_norm": sums["gradient_norm"] / taken,
        "learning_rate": learning_rate,
        "steps_per_second": sums["steps"] / sums["seconds"],
        "tokens_per_second": sums["weight_sum"] / sums["seconds"],
        "goodput": goodput(seconds),
        "wall_seconds": seconds["wall"],
        **memory.held_on_a_device(),
        **{name: total / taken for name, total in sums.items() if name.startswith(OF_TRAINING)},
    }
    if "data_seconds" in sums:
        trained["data_seconds_per_step"] = sums["data_seconds"] / sums["steps"]
    if "seconds_at_peak" in sums:
        trained["mfu"] = sums["seconds_at_peak"] / sums["seconds"]
    log.record(record.step, trained)
    log.show(record.step, trained)
    return dataclasses.replace(record, train_loss=loss, unlogged={})
