"""Runs: training in a run folder, and evaluation from it."""

import functools
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fxf.base import memory, status
from fxf.base.config import section
from fxf.base.devices import target_devices
from fxf.base.errors import UserError
from fxf.base.files import folder_at, new_folder
from fxf.base.on_gpu import deterministic_options
from fxf.base.weights import Params, count
from fxf.reports.run_files import CHECKPOINTS
from fxf.runs import compatibility, guests, run_folder
from fxf.runs.evaluator import Evaluators, plain, sample_text, scoring_of
from fxf.runs.experiment import Experiment, ProgramCache, build
from fxf.runs.flops import seconds_at_peak, wasted
from fxf.runs.generation import score_pairs, write_answers
from fxf.runs.loading import Changes, Place, load, load_params
from fxf.runs.warm_start import Start, start_of
from fxf.tasks.language_model import LanguageModel
from fxf.tasks.task import Evaluator
from fxf.training import checkpoint_files, processes
from fxf.training.checkpoint import Checkpoints
from fxf.training.fine_tuning import evaluated_params
from fxf.training.log import Clock, MetricsLog, goodput, last_wall_seconds
from fxf.training.loop import STEPS_AT_ONCE, Intervals, fit
from fxf.training.optimizer import make_schedule
from fxf.training.parallel import ParallelConfig
from fxf.training.record import Record, record_of
from fxf.training.sharding import Layout, make_layout
from fxf.training.state import TrainState
from fxf.training.step import Metrics, make_train_steps, make_train_steps_from_iterator, with_arrays
from fxf.training.trackers import OnRecord, Trackers


def train(
    config: Mapping[str, Any],
    workdir: str | Path,
    origin: dict[str, Any],
    started: float | None = None,
    profile: bool = False,
    kept: ProgramCache | None = None,
    on_record: OnRecord | None = None,
) -> dict[str, Any]:
    """Trains the run in `workdir` from its newest checkpoint to its last step, and returns its result.

    A finished run stays as it is. Several processes call this, each with its `parallel.process`; all see `workdir`.

    Args:
      origin: the origin of the config, which config.json records.
      started: when the process began, by `time.perf_counter`; by default now.
      profile: whether to write a trace of a step or two into the folder `profile`.
      kept: the programs of earlier runs of this process, which this run uses if its own would be the same.
      on_record: a function that receives each record of metrics, with its step.

    Raises:
      UserError: the config is wrong, the folder holds another run, the loss is not finite, or the disk is full.
      Interrupted: a signal asked a script that listens (`fxf.base.signals`) to stop; its step is saved.
    """
    with ExitStack() as run:
        clock, workdir = Clock(started), _joined(config, workdir, run)
        trackers = run.enter_context(Trackers(on_record))
        experiment = build(config, workdir).sharing(kept)
        layout, start, made_from = _made_from(experiment, workdir)
        if (finished := run_folder.finished(made_from)) is not None:
            if processes.is_first():
                status.say(f"{workdir}: finished already, nothing to do")
            return finished
        figures = experiment.task.figures()  # of a finished run they would take as long as tokenizing its data
        run.enter_context(run_folder.locked(workdir))
        origin = {**origin, guests.GUESTS: guests.record(experiment.config), **start.origin, **scoring_of(experiment)}
        identity = run_folder.open_for_training(made_from, origin)
        checkpoints = run.enter_context(closing(Checkpoints(workdir / CHECKPOINTS, experiment.checkpoint, identity)))
        newest = checkpoints.restore(experiment.state_shapes(layout))
        record = record_of(newest[2]) if newest else Record()
        record.best = record.best if experiment.train.patience else None  # it may be that of another metric
        clock.add_earlier(record.seconds | {"wall": max(record.seconds.get("wall", 0.0), last_wall_seconds(workdir))})
        intervals = Intervals(experiment.train, experiment.checkpoint, experiment.log, profile)
        log = run.enter_context(MetricsLog(workdir, experiment.train.steps, record.step, experiment.log, trackers))
        trackers.config(experiment.config)
        start_lines = [f"{workdir}: resuming at step {record.step}"] if newest else start.lines
        log.print_lines(_data_line(figures), *wasted(experiment, layout), intervals.unranked(), *start_lines)
        evaluators = Evaluators(experiment, layout)
        if not intervals.end(record):
            steps = Steps(experiment, layout, record, clock)
            log.begin("compiling", record.step)
            with clock.measure("compile"):
                state = newest[1] if newest else jax.block_until_ready(experiment.new_state(layout, start.given))
            validated = functools.partial(_validated, experiment, evaluators, log)
            record = fit(state, record, steps, validated, checkpoints, intervals, log, clock)
        (step, *_), params = load_params(experiment, layout, workdir, identity)
        with clock.measure("evaluate"):
            figures |= _tested(experiment, evaluators(params), log, record.step)
        log.publish()
        return run_folder.write_result(workdir, _result(experiment, record, step, figures, clock.seconds()), identity)


def _joined(config: Mapping[str, Any], workdir: Place, run: ExitStack) -> Path:
    """Returns the run folder, after joining the other processes; `run` gets contexts that turn errors into one line."""
    folder = folder_at(workdir, "workdir")
    parallel = section(ParallelConfig, config.get("parallel", {}), "parallel")
    processes.join(parallel)
    if not processes.is_first():
        status.end()
    make_layout(parallel, target_devices())  # a mesh that does not fit is an error before the data are prepared
    run.enter_context(processes.ending_with_the_others())
    run.enter_context(checkpoint_files.kept(folder / CHECKPOINTS))
    return folder


def _made_from(experiment: Experiment, workdir: Path) -> tuple[Layout, Start, run_folder.RunInputs]:
    """Returns layout and start of a run, and what `run_folder` says it is made from.

    Raises:
      UserError: they do not fit each other, or the processes have different configs.
    """
    task = experiment.task
    processes.require_same_config({**experiment.config, **guests.digests(experiment.config, workdir)})
    layout = experiment.layout()
    start = start_of(experiment, layout, workdir)
    compatibility.require_learnable(experiment.config["task"]["name"], task, experiment.model, experiment.seed)
    return layout, start, experiment.made_in(workdir, start.digests)


def _data_line(figures: Mapping[str, Any]) -> str:
    return "  ".join(f"{name} {value}" for name, value in figures.items())


def _validated(experiment: Experiment, evaluators: Evaluators, log: MetricsLog, state: TrainState) -> dict[str, Any]:
    """Returns the metrics of a state's validation, and logs the samples among them."""
    figures, best = plain(experiment.task.validate(evaluators(evaluated_params(state)))), experiment.checkpoint.best
    if best and best.removeprefix("-") not in figures:
        raise UserError(f"checkpoint.best: the validation has no {best.removeprefix('-')}; it has {', '.join(figures)}")
    return log.without_samples(int(state.step), figures)


def _tested(experiment: Experiment, evaluator: Evaluator, log: MetricsLog, step: int) -> dict[str, Any]:
    """Returns the metrics of the test, and prints its samples."""
    log.begin("testing", step)
    tested = plain(experiment.task.test(evaluator))
    if processes.is_first() and (samples := tested.get("samples")):
        print("\n".join(sample_text(*sample) for sample in samples), end="\n\n")  # a blank line before the result
    return log.without_samples(step, tested, test=True)


def _result(
    experiment: Experiment, record: Record, step: int, figures: Mapping[str, Any], seconds: dict[str, float]
) -> dict[str, Any]:
    """Returns the flat object of result.json; `step` is the step of the tested checkpoint."""
    return {
        "task": experiment.config["task"]["name"],
        "steps": record.step,
        "seed": experiment.seed,
        "parameters": count(experiment.model.spec),
        **({"best_step": step} if experiment.checkpoint.best else {}),
        **figures,
        "train_loss": record.train_loss,
        **({"skipped_steps": record.skipped} if experiment.train.skip_nonfinite else {}),
        "tokens_per_second": round(record.tokens / seconds["train"]),
        **{f"{name}_seconds": round(seconds[name], 3) for name in ("train", "compile", "evaluate", "wall")},
        "goodput": round(goodput(seconds), 4),
        **memory.held_on_a_device(),
    }


class Steps:
    """The training steps of a run that `fxf.training.loop.fit` takes, from the step of a record on.

    If the batches are made on the device, the program is traced here, and compiles in a thread until the first step.
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
                self._batches.set_state(record.data.encode() if isinstance(record.data, str) else record.data)
            self._from_iterator = make_train_steps_from_iterator(trainer, self._batches, at_peak, programs)
            return
        n_steps, batch = min(experiment.log.every, experiment.train.steps, STEPS_AT_ONCE), task.largest_batch()
        self._least = {} if at_peak is None else {"seconds_at_peak": np.full(n_steps, at_peak(batch))}
        make_batch, arrays, _ = with_arrays(task.batch)
        self._arrays = jax.device_put(arrays, layout.replicated)
        if not programs:
            with self._compiling():
                jitted = make_train_steps(trainer, make_batch, n_steps)
                lowered = jitted.lower(experiment.state_shapes(layout), self._numbers, np.int32(0), *self._arrays)
            thread = ThreadPoolExecutor(1)
            programs["steps"] = thread.submit(lowered.compile, deterministic_options(lowered))
            thread.shutdown(wait=False)

    def train(self, state: TrainState, n: Any) -> tuple[TrainState, Metrics]:
        """Takes n steps; returns the state and the metrics of each."""
        if self._batches is not None:
            return self._from_iterator(state, self._numbers, n)
        if isinstance(begun := self._programs["steps"], Future):
            with self._compiling():
                self._programs["steps"] = begun.result()
        state, metrics = self._programs["steps"](state, self._numbers, n, *self._arrays)
        return state, metrics | self._least

    def learning_rate(self, step: int) -> float:
        """Returns the learning rate of a step."""
        config, numbers = self._experiment.optimizer_config, self._experiment.hyperparameters().optimizer
        return float(make_schedule(config, self._experiment.train.steps, numbers)(np.int32(step)))

    def position(self) -> Any:
        """Returns the position in the data as JSON; a DataLoader of Grain gives bytes."""
        state = None if self._batches is None else self._batches.get_state()
        return state.decode() if isinstance(state, bytes) else state


def evaluate(
    workdir: Place,
    step: int | None = None,
    decode: Changes = None,
    pairs: Place | None = None,
    output: Place | None = None,
) -> dict[str, Any]:
    """Scores the checkpoint that `load` reads from `workdir`. Returns its step and the task's metrics.

    Args:
      pairs: a file of prompts and right answers, tab-separated, to score instead of the test data.
      output: a folder for the answers, as `write_answers` writes them.

    Raises:
      UserError: as `load`; the data differ from those of the training; or the task has no such answers, or no score
        that reads the changed keys.
    """
    to = None if output is None else new_folder(output, "--output")
    experiment, loaded_step, params = load(workdir, step, decode)
    if (unread := {*(decode or {})} - {"weights"}) and type(experiment.task).test is LanguageModel.test:
        raise UserError(f"decode.{min(unread)}: a language model is scored without decoding; leave it out")
    if to is not None:
        to.mkdir(parents=True, exist_ok=True)  # fail before scoring, which takes long
    if pairs is None:
        figures = scored(workdir, experiment, params)
    else:
        figures = plain(score_pairs(experiment, Evaluators(experiment)(params), Path(pairs)))
    figures.pop("samples", None)
    answers = figures.pop("answers", None)
    if to is not None:
        write_answers(experiment, to, answers)
    return {"step": loaded_step, **figures}


def scored(workdir: Place, experiment: Experiment, params: Params) -> dict[str, Any]:
    """Returns the metrics of the test with params. Raises a UserError if the data differ from those of the training."""
    try:
        digests = experiment.task.digests()
    except UserError as error:
        raise UserError(f"{error}; the data are where {workdir}/config.json says") from None
    run_folder.require_same_data(folder_at(workdir, "workdir"), digests)
    return plain(experiment.task.test(Evaluators(experiment)(params)))
