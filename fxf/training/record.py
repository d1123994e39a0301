"""The progress of a run: what is saved with a state, and what a step adds to it."""

import dataclasses
import math
from typing import Any

import numpy as np

from fxf.base.errors import DivergedError, UserError
from fxf.base.named_arrays import OF_TRAINING
from fxf.training.step import STEP_METRICS


@dataclasses.dataclass
class Record:
    """The progress of a run and its last metrics, saved with a state.

    Attributes:
      step: number of steps done.
      train_loss: the loss of the newest record of training; None before the first one.
      evaluated: metrics of this step's evaluation, if there was one.
      best: rank and step of the best evaluation, if `checkpoint.best` names a metric.
      stopped: whether training stopped early (`train.patience`).
      tokens: sum of the weights of the tokens that training has read.
      skipped: number of steps whose loss or gradient was not finite, and which changed nothing.
      data: position in the data, as JSON.
      seconds: seconds spent by purpose.
      unlogged: sums of each metric over the steps since that record; also `steps`, their number, `taken`, the number of
        those not skipped, and `seconds`.
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
    unlogged: dict[str, float] = dataclasses.field(default_factory=dict)


def record_of(saved: dict[str, Any]) -> Record:
    """Returns the record that was saved with a checkpoint. Raises a UserError if it has other fields."""
    if other := sorted(saved.keys() ^ vars(Record()).keys()):
        raise UserError(f"the checkpoint's record has other fields ('{other[0]}'): changed, or saved by another fxf")
    if best := saved["best"]:  # JSON has neither infinity nor NaN
        saved["best"] = (-math.inf if best[0] is None else best[0], best[1])
    saved["unlogged"] = {name: math.nan if value is None else value for name, value in saved["unlogged"].items()}
    return Record(**saved)


def add_steps(record: Record, history: dict[str, np.ndarray], seconds: float, may_skip: int) -> Record:
    """Returns the record after the steps of `history`, whose sums leave out skipped steps."""
    skipped = _zero_nonfinite(history, record.step, may_skip - record.skipped)
    n = len(history["loss_sum"])
    sums = {name: _sum(record.unlogged.get(name, 0.0), values) for name, values in history.items()}
    more = {"steps": n, "taken": n - skipped, "seconds": seconds}
    sums |= {name: record.unlogged.get(name, 0) + value for name, value in more.items()}
    tokens, skipped = _sum(record.tokens, history["weight_sum"]), record.skipped + skipped
    return dataclasses.replace(record, step=record.step + n, tokens=tokens, skipped=skipped, unlogged=sums)


def _sum(start: float, values: np.ndarray) -> float:
    """Adds values [N] to a start one by one, so that the sum is the same however the values are split over calls."""
    return float(np.add.accumulate(np.append(start, values))[-1])  # in float64, the type of `start`


def _zero_nonfinite(history: dict[str, np.ndarray], step: int, allowed: int) -> int:
    """Returns the number of steps whose loss or gradient is not finite, and sets their metrics in `history` to 0.

    Raises:
      DivergedError: there are more such steps than allowed.
    """
    bad = ~(np.isfinite(history["loss_sum"]) & np.isfinite(history["gradient_norm"]))
    if bad.sum() > allowed:
        last = int(np.flatnonzero(bad)[allowed])
        what = f"the loss is {history['loss_sum'][last]} and the gradient's norm {history['gradient_norm'][last]}"
        advice = "A lower optimizer.learning_rate or clip_norm may help; a target that is no token makes it NaN too."
        raise DivergedError(f"step {step + last + 1}: {what}; training stopped. {advice}")
    for name in history:
        if name in STEP_METRICS or name.startswith(OF_TRAINING):
            history[name] = np.where(bad, 0, history[name])
    return int(bad.sum())
