"""The compiled steps of a run."""

import functools
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from fxf.base.on_gpu import options_in_order
from fxf.runs.experiment import Experiment
from fxf.runs.flops import seconds_at_peak
from fxf.training.log import Clock
from fxf.training.loop import STEPS_AT_ONCE
from fxf.training.optimizer import make_schedule
from fxf.training.record import Record
from fxf.training.sharding import Layout
from fxf.training.state import TrainState
from fxf.training.step import Metrics, make_train_steps, make_train_steps_from_iterator


class Steps:
    """The steps of a run from that of a record on; `fxf.training.loop.fit` takes them.

    If a program makes its batches, it is traced when this object is made, and compiles in a thread, beside what comes
    until the first step.
    """

    def __init__(self, experiment: Experiment, layout: Layout, record: Record, clock: Clock) -> None:
        task, trainer, programs = experiment.task, experiment.trainer(layout), experiment.programs["train", layout]
        self._experiment, self._programs = experiment, programs
        self._compiling = functools.partial(clock.measure, "compile")
        self._numbers = jax.device_put(experiment.hyperparameters(), layout.replicated)
        at_peak = seconds_at_peak(experiment, layout, self._compiling)
        self._batches = task.batches() if task.has("batches") else None
        if self._batches is not None:
            if record.step:
                self._batches.set_state(record.data)
            self._from_iterator = make_train_steps_from_iterator(trainer, self._batches, at_peak, programs)
            return
        n_steps, batch = min(experiment.log.every, experiment.train.steps, STEPS_AT_ONCE), task.largest_batch()
        self._least = {} if at_peak is None else {"seconds_at_peak": np.full(n_steps, at_peak(batch))}
        if not programs:
            with self._compiling():
                jitted = make_train_steps(trainer, task.batch, n_steps)
                lowered = jitted.lower(experiment.state_shapes(layout), self._numbers, np.int32(0))
            thread = ThreadPoolExecutor(1)
            programs["steps"] = thread.submit(lowered.compile, options_in_order(lowered))
            thread.shutdown(wait=False)

    def train(self, state: TrainState, n: Any) -> tuple[TrainState, Metrics]:
        """Takes n steps; returns the state and the metrics of each."""
        if self._batches is not None:
            return self._from_iterator(state, self._numbers, n)
        if isinstance(begun := self._programs["steps"], Future):
            with self._compiling():
                self._programs["steps"] = begun.result()
        state, metrics = self._programs["steps"](state, self._numbers, n)
        return state, metrics | self._least

    def learning_rate(self, step: int) -> float:
        """Returns the learning rate of a step."""
        config, numbers = self._experiment.optimizer_config, self._experiment.hyperparameters().optimizer
        return float(make_schedule(config, self._experiment.train.steps, numbers)(np.int32(step)))

    def position(self) -> Any:
        """Returns the position in the data, as JSON."""
        return None if self._batches is None else self._batches.get_state()
