"""Runs: training in a run folder, and evaluation and generation from it."""

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import jax

from fxf.config import section
from fxf.errors import UserError
from fxf.files import folder_at
from fxf.machine import signals, status
from fxf.runs import guests, run_folder
from fxf.runs.contract import figures_of, require_learnable
from fxf.runs.experiment import Experiment, build
from fxf.runs.generation import answering, compare, score_pairs, write_answers
from fxf.runs.loading import CHECKPOINTS, Changes, Place, load, load_params
from fxf.runs.lock import locked
from fxf.runs.programs import Kept, share
from fxf.runs.result import result_of, sample_text, scoring_of
from fxf.runs.steps import make_steps
from fxf.runs.warm_start import Start, start_of
from fxf.tasks.prompts import Answer
from fxf.tasks.task import Evaluator
from fxf.training import checkpoint_files, processes
from fxf.training.checkpoint import Checkpoints
from fxf.training.fine_tuning import evaluated_params
from fxf.training.log import Clock, MetricsLog, NoLog
from fxf.training.loop import Calls, Intervals, fit
from fxf.training.parallel import ParallelConfig
from fxf.training.record import Record, record_of
from fxf.training.sharding import Layout
from fxf.training.state import TrainState
from fxf.training.trackers import Trackers


def train(
    config: Mapping[str, Any],
    workdir: str | Path,
    clock: Clock,
    origin: dict[str, Any],
    profile: bool = False,
    kept: Kept | None = None,
    trackers: Trackers | None = None,
) -> dict[str, Any]:
    """Trains the run in `workdir` from its newest checkpoint to its last step, and returns its result.

    It prints the samples of the task's test. A finished run stays as it is. If `parallel` names several processes,
    each one calls this function with the same arguments, except for `parallel.process`. All must see `workdir`.

    Args:
      origin: the origin of the config, which config.json records.
      profile: whether to write a trace of a few steps after the first record into the folder `profile`.
      kept: the programs of earlier runs of this process, which this run uses if its own would be the same.
      trackers: receive the records, and stay open for more; by default they are closed with the run.

    Raises:
      UserError: the config is wrong, the folder holds another run, the loss is not finite, the disk is full, or no step
        is left to trace.
      Interrupted: a signal asked a script that listens (`fxf.machine.signals`) to stop; its step is saved.
    """
    workdir = folder_at(workdir, "workdir")
    processes.join(section(ParallelConfig, config.get("parallel"), "parallel"))
    if not processes.is_first():
        status.end()
    of_run = Trackers() if trackers is None else nullcontext(trackers)
    with of_run as told, processes.ending_with_the_others(), checkpoint_files.kept(workdir / CHECKPOINTS):
        experiment = build(config, workdir)
        experiment = experiment if kept is None else share(experiment, kept)
        return _train(experiment, workdir, origin, Watch(clock, told, profile))


class Watch(NamedTuple):
    """The clock, the trackers, and whether to profile."""

    clock: Clock
    trackers: Trackers
    profile: bool


def _train(experiment: Experiment, workdir: Path, origin: dict[str, Any], watch: Watch) -> dict[str, Any]:
    code = guests.digests(experiment.config, workdir)
    origin = {**origin, guests.GUESTS: guests.record(experiment.config)}
    processes.require_same_config({**experiment.config, **code})
    layout, figures = experiment.layout(), experiment.task.figures()
    start = start_of(experiment, layout, workdir)
    data = experiment.task.digests() | code | start.digests
    made_from = (workdir, experiment.config, data, experiment.task.files)
    finished = run_folder.finished(*made_from)
    if finished is not None:
        if processes.is_first():
            print(f"{workdir}: finished already, nothing to do")
        return finished
    if not experiment.programs:  # else a run with the same programs has fitted
        experiment.hyperparameters()
        require_learnable(experiment)
    with locked(workdir):
        identity = run_folder.open_for_training(*made_from, origin | start.origin | scoring_of(experiment))
        return _train_from_newest(experiment, layout, workdir, identity, watch, figures, start)


def _train_from_newest(
    experiment: Experiment,
    layout: Layout,
    workdir: Path,
    identity: run_folder.Identity,
    watch: Watch,
    figures: dict[str, Any],
    start: Start,
) -> dict[str, Any]:
    """Trains from the newest checkpoint or the start, tests, and returns the result. `figures` describe the data."""
    task, clock, named = experiment.task, watch.clock, f"task '{experiment.config['task']['name']}'"
    checkpoints = Checkpoints(workdir / CHECKPOINTS, experiment.checkpoint, identity)
    newest, record, resumed = _newest(checkpoints, experiment, layout, start, clock)
    intervals = Intervals(experiment.train, experiment.checkpoint, experiment.log)
    if watch.profile:
        intervals.require_profile(record.step)
    logged = (workdir, experiment.train.steps, record.step, experiment.log, watch.trackers)
    metrics_log = MetricsLog(*logged) if processes.is_first() else NoLog()
    watch.trackers.config(experiment.config)
    evaluator = experiment.evaluator(clock, layout)

    def save(state: TrainState, record: Record) -> None:
        run_folder.require_there(workdir)
        metrics_log.publish()
        checkpoints.save(record.step, state, dataclasses.asdict(record))

    def evaluate(state: TrainState) -> dict[str, Any]:
        found = task.validate(evaluator(evaluated_params(state)))
        found = figures_of(named, found, task.metrics, experiment.checkpoint.best)
        return metrics_log.without_samples(int(state.step), found)

    with metrics_log, closing(checkpoints), processes.ending_with_the_others():
        came_from = [f"{workdir}: resuming at step {record.step}"] if resumed else start.lines
        of_data = ["  ".join(f"{name} {value}" for name, value in figures.items())] if figures else []
        for line in (*of_data, *layout.unsharded(experiment.model.spec), *came_from):
            metrics_log.print_line(line)
        if record.step < experiment.train.steps or intervals.evaluation_is_missing(record):
            made = make_steps(experiment, layout, record, clock)
            metrics_log.begin("compiling", record.step)
            with status.stage("training", experiment.train.steps, record.step) as training:
                calls = Calls(
                    train_steps=made.train,
                    learning_rate=made.learning_rate,
                    evaluate=evaluate,
                    save=save,
                    wait=checkpoints.wait,
                    position=made.position,
                    interrupted=lambda: processes.any_of(signals.asked()),
                    traced=metrics_log.traced if watch.profile else None,
                    advance=training.advance,
                )
                _, record = fit(newest(), record, calls, intervals, metrics_log, clock)
        steps, params = load_params(experiment, layout, workdir, identity)
        metrics_log.begin("testing", record.step)
        with clock.measure("evaluate"):
            tested = figures | _test(experiment, evaluator(params), metrics_log, record.step)
        result = result_of(experiment, record, steps[0], tested, clock.seconds())
        run_folder.require_there(workdir)
        return run_folder.write_result(workdir, result, identity)


def _test(experiment: Experiment, evaluator: Evaluator, metrics_log: MetricsLog, step: int) -> dict[str, Any]:
    """Returns the figures of the test, and prints its samples."""
    tested = figures_of(f"task '{experiment.config['task']['name']}'", experiment.task.test(evaluator))
    tested.pop("answers", None)
    if processes.is_first() and (samples := tested.get("samples")):
        print("\n".join(sample_text(*sample) for sample in samples), end="\n\n")  # the result stands apart
    return metrics_log.without_samples(step, tested, test=True)


def _newest(
    checkpoints: Checkpoints, experiment: Experiment, layout: Layout, start: Start, clock: Clock
) -> tuple[Callable[[], TrainState], Record, bool]:
    """Returns the newest checkpoint's state and record, or those of the start, and whether there is a checkpoint.

    The state is behind a call, so that the program that draws a new one compiles beside the step's.
    """
    if restored := checkpoints.restore(experiment.state_shapes(layout)):
        record = record_of(restored[2])
        clock.add_earlier(record.seconds)
        return lambda: restored[1], record, True

    def drawn() -> TrainState:
        with clock.measure("compile"):
            return jax.block_until_ready(start.state(experiment, layout))

    return drawn, Record(), False


def evaluate(
    workdir: Place,
    clock: Clock,
    step: int | None = None,
    decode: Changes = None,
    config_file: Place | None = None,
    pairs: Place | None = None,
    output: Place | None = None,
    baseline: Place | None = None,
) -> dict[str, Any]:
    """Scores the checkpoint that `load` reads from `workdir`. Returns its step and the task's figures.

    Args:
      pairs: a file of prompts and right answers, tab-separated, to score instead of the test data.
      output: a folder for the answers, as `write_answers` writes them.
      baseline: such a folder of another system, with which `compare` compares.

    Raises:
      UserError: as `load`; the data differ from those of the training; or the task has no such answers.
    """
    to = None if output is None else folder_at(output, "--output")
    experiment, found, params = load(workdir, step, decode, config_file, scores_data=pairs is None)
    evaluator = experiment.evaluator(clock, experiment.layout_of_one_copy())(params)
    if pairs is None:
        figures = figures_of(f"task '{experiment.config['task']['name']}': test", experiment.task.test(evaluator))
    else:
        figures = score_pairs(experiment, evaluator, Path(pairs))
    figures.pop("samples", None)
    answers = figures.pop("answers", None)
    if to is not None:
        write_answers(experiment, to, answers)
    if baseline is not None:
        figures |= compare(experiment, Path(baseline), answers)
    return {"step": found, **figures}


def generate(workdir: Place, texts: list[str], decode: dict[str, Any], **options: Any) -> list[list[Answer]]:
    """Returns the answers to texts of the run in `workdir`; `options` and errors are those of `generator`."""
    if not texts:
        raise UserError("no prompt: give prompts as arguments, or one on each line of standard input")
    return generator(workdir, decode, **options)(texts)


def generator(
    workdir: Place,
    decode: dict[str, Any],
    *,
    n_best: int | None = None,
    max_tokens: int = 0,
    seed: int | None = None,
    step: int | None = None,
    config_file: Place | None = None,
) -> Callable[[list[str]], list[list[Answer]]]:
    """Returns a function from texts to their answers, with the checkpoint that `load` reads from `workdir`.

    Args:
      decode: keys of the `decode` section to change.
      n_best: number of hypotheses that the caller needs; the beam must be as wide.
      max_tokens: maximum number of new tokens; 0 for as many as the model's positions, or a translation's
        data.max_length, allow.
      seed: the seed of sampling; None for 0, or for no sampling.
      step, config_file: as in `load`.

    Raises:
      UserError: an option is wrong. The function raises one if the task cannot read a prompt, or the model cannot hold
        it; the line gives its number.
    """
    experiment, _, params = load(workdir, step, decode, config_file)
    width = experiment.decode.beam_width
    if n_best and width == 1:
        raise UserError("n_best: only beam search scores its hypotheses; set decode.beam_width above 1")
    if n_best and n_best > width:
        raise UserError(f"n_best: {n_best} is more than decode.beam_width {width}")
    if seed is not None and not experiment.decode.temperature:
        raise UserError("seed: no token is drawn; set decode.temperature above 0")
    return answering(experiment, params, max_tokens, seed or 0)
