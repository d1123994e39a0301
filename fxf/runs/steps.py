"""The compiled steps of a run."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from fxf.machine.compiled import CompiledByShape
from fxf.machine.on_gpu import in_order
from fxf.runs.experiment import Experiment
from fxf.runs.flops import seconds_at_peak
from fxf.training.log import Clock
from fxf.training.loop import STEPS_AT_ONCE
from fxf.training.optimizer import make_schedule, optimizer_section
from fxf.training.record import Record
from fxf.training.sharding import Layout
from fxf.training.state import TrainState
from fxf.training.step import Metrics, make_train_steps, make_train_steps_from_iterator


class Steps(NamedTuple):
    """The steps of a run.

    Attributes:
      train: `train(state, n)` takes n steps, and returns the state and the metrics of each.
      learning_rate: `learning_rate(step)` returns the rate of a step.
      position: `position()` returns the position in the data.
    """

    train: Callable[[TrainState, Any], tuple[TrainState, Metrics]]
    learning_rate: Callable[[int], Any]
    position: Callable[[], Any]


def make_steps(experiment: Experiment, layout: Layout, record: Record, clock: Clock) -> Steps:
    """Returns the steps of a run from that of `record`."""
    task, trainer, programs = experiment.task, experiment.trainer(layout), experiment.programs["train", layout]
    hyperparameters = jax.device_put(experiment.hyperparameters(), layout.replicated)
    compiling = functools.partial(clock.measure, "compile")
    at_peak = seconds_at_peak(experiment, layout, compiling)
    schedule = functools.partial(
        make_schedule, optimizer_section(experiment.config["optimizer"]), experiment.train.steps
    )
    rate = CompiledByShape(
        jax.jit(lambda numbers, step: schedule(numbers)(step)), compiling, experiment.programs["rate", layout]
    )

    def learning_rate(step: int) -> jax.Array:
        return rate(hyperparameters.optimizer, np.int32(step))

    if task.has("batches"):
        batches = task.batches()
        if record.step:
            batches.set_state(record.data)
        from_iterator = make_train_steps_from_iterator(trainer, batches, compiling, at_peak, programs)
        return Steps(lambda state, n: from_iterator(state, hyperparameters, n), learning_rate, batches.get_state)
    n_steps = min(experiment.log.every, experiment.train.steps, STEPS_AT_ONCE)
    program = CompiledByShape(make_train_steps(trainer, task.batch, n_steps), compiling, programs, in_order)
    least = {} if at_peak is None else {"seconds_at_peak": np.full(n_steps, at_peak(experiment.batch_shapes()))}

    def train(state: TrainState, n: Any) -> tuple[TrainState, Metrics]:
        state, metrics = program(state, hyperparameters, n)
        return state, metrics | least

    return Steps(train, learning_rate, lambda: None)
