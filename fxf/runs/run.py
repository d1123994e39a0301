"""A run: training in a run folder, and evaluation and generation with what it holds."""

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fxf import weights
from fxf.config import section
from fxf.decoding.config import DecodeConfig, changed_decode
from fxf.errors import UserError, printable
from fxf.files import folder_at
from fxf.machine import signals
from fxf.runs import run_folder
from fxf.runs.config_file import digests_of, load_of_run
from fxf.runs.experiment import Experiment, build
from fxf.runs.generation import generate_texts
from fxf.runs.lock import locked
from fxf.runs.needs import require_state, require_training
from fxf.tasks.prompts import Answer
from fxf.training import checkpoint, processes
from fxf.training.checkpoint import Checkpoints
from fxf.training.loop import STEPS_AT_ONCE, Calls, Intervals, Record, fit
from fxf.training.metrics import Clock, MetricsLog, NoLog
from fxf.training.sharding import Layout, ParallelConfig
from fxf.training.state import TrainState
from fxf.training.step import Metrics, make_train_steps, make_train_steps_from_iterator

CHECKPOINTS = "checkpoints"

Place = str | Path
Changes = dict[str, Any] | None


def train(config: Mapping[str, Any], workdir: str | Path, clock: Clock, origin: dict[str, Any]) -> dict[str, Any]:
    """Trains the run in `workdir` from its newest checkpoint to its last step, and returns its result.

    It prints the samples of the task's test. A finished run is left as it is. Where `parallel` names several
    processes, each calls this with the same arguments but `parallel.process`, and a `workdir` that all of them see.

    Args:
      origin: what the config came from, kept in config.json.

    Raises:
      UserError: the config is wrong, the folder holds another run, the loss is not finite, or the disk is full.
      Interrupted: a script that listens to signals (`fxf.machine.signals`) was asked to stop; its step is saved.
    """
    workdir = folder_at(workdir, "workdir")
    processes.join(section(ParallelConfig, config.get("parallel"), "parallel"))
    with processes.ending_with_the_others(), checkpoint.kept(workdir / CHECKPOINTS):
        return _train(config, workdir, clock, origin)


def _train(config: Mapping[str, Any], workdir: Path, clock: Clock, origin: dict[str, Any]) -> dict[str, Any]:
    experiment = build(config, workdir)
    code = digests_of(origin, workdir)
    processes.require_same_config({**experiment.config, **code})
    layout, figures = experiment.layout(), experiment.task.figures()
    made_from = (workdir, experiment.config, experiment.task.digests() | code, experiment.task.files)
    finished = run_folder.finished(*made_from)
    if finished is not None:
        if processes.is_first():
            print(f"{workdir}: finished already, nothing to do")
        return finished
    require_training(experiment, layout)
    with locked(workdir):
        identity = run_folder.open_for_training(*made_from, origin)
        return _train_from_newest(experiment, layout, workdir, identity, clock, figures)


def _train_from_newest(
    experiment: Experiment,
    layout: Layout,
    workdir: Path,
    identity: run_folder.Identity,
    clock: Clock,
    figures: dict[str, Any],
) -> dict[str, Any]:
    """Trains from the newest checkpoint, tests, and writes the result. `figures` are those of the data."""
    task = experiment.task
    checkpoints = Checkpoints(workdir / CHECKPOINTS, experiment.checkpoint, identity)
    restored = checkpoints.restore(experiment.state_shapes(layout))
    record = Record()
    if restored:
        state, record = restored[1], Record(**restored[2])
        clock.add_earlier(record.seconds)
    else:
        with clock.measure("compile"):
            state = jax.block_until_ready(experiment.new_state(layout))
    logged = (workdir, experiment.train.steps, record.step, experiment.log.tensorboard)
    metrics_log = MetricsLog(*logged) if processes.is_first() else NoLog()
    evaluator = experiment.evaluator(clock, layout)
    intervals = Intervals(experiment.train, experiment.checkpoint, experiment.log)

    def save(state: TrainState, record: Record) -> None:
        run_folder.require_there(workdir)
        metrics_log.publish()
        checkpoints.save(record.step, state, dataclasses.asdict(record))

    with closing(metrics_log), processes.ending_with_the_others():
        if figures:
            metrics_log.print_line("  ".join(f"{name} {value}" for name, value in figures.items()))
        if restored:
            metrics_log.print_line(f"{workdir}: resuming at step {record.step}")
        if record.step < experiment.train.steps or intervals.evaluation_is_missing(record):
            train_steps, position = _make_steps(experiment, layout, state, record, clock)
            calls = Calls(
                train_steps=train_steps,
                learning_rate=experiment.learning_rate,
                evaluate=lambda s: task.validate(evaluator(s.params)),
                save=save,
                position=position,
                interrupted=lambda: processes.any_of(signals.asked()),
            )
            _, record = fit(state, record, calls, intervals, metrics_log, clock)
    step, params = _load_params(experiment, layout, workdir, identity)
    with clock.measure("evaluate"):
        tested = task.test(evaluator(params))
    samples = tested.pop("samples", [])
    for prompt, expected, answer in samples if processes.is_first() else []:
        print(_sample(prompt, expected, answer))
    result = _result(experiment, record, step, {**figures, **tested}, clock.seconds())
    run_folder.require_there(workdir)
    return run_folder.write_result(workdir, result, identity)


def _sample(prompt: str, expected: str | None, answer: str) -> str:
    """Returns a sample as it is printed: on one line, or where it has no prompt on the lines of its text."""
    if not prompt:
        return "\n".join(map(printable, answer.split("\n")))
    wrong = expected is not None and answer != expected
    return printable(f"{prompt}  →  {answer}" + (f"   (expected: {expected})" if wrong else ""))


def _make_steps(
    experiment: Experiment, layout: Layout, state: TrainState, record: Record, clock: Clock
) -> tuple[Callable[[TrainState, Any], tuple[TrainState, Metrics]], Callable[[], Any]]:
    """Returns `train_steps(state, n)`, and a function that returns where the data stand."""
    task, trainer = experiment.task, experiment.trainer(layout)
    numbers = jax.device_put(experiment.hyperparameters(), layout.replicated)
    if task.batches is not None:
        batches = task.batches()
        if record.step:
            batches.set_state(record.data)
        fed = make_train_steps_from_iterator(trainer, batches, lambda: clock.measure("compile"))
        return lambda state, n: fed(state, numbers, n), batches.get_state
    assert task.batch is not None
    with clock.measure("compile"):
        most = min(experiment.log.every, experiment.train.steps, STEPS_AT_ONCE)
        program = make_train_steps(trainer, task.batch, most).lower(state, numbers, np.int32(0)).compile()
    return lambda state, n: program(state, numbers, n), lambda: None


def _result(
    experiment: Experiment, record: Record, step: int, figures: dict[str, Any], seconds: dict[str, float]
) -> dict[str, Any]:
    """Returns the flat object of result.json; `step` is that of the checkpoint that was tested."""
    spent = {name: round(value, 3) for name, value in seconds.items()}
    return {
        "task": experiment.config["task"]["name"],
        "steps": record.step,
        "seed": experiment.seed,
        "parameters": weights.count(experiment.model.spec),
        **({"best_step": step} if experiment.checkpoint.best else {}),
        **figures,
        "train_loss": record.train_loss,
        **({"skipped_steps": record.skipped} if experiment.train.skip_nonfinite else {}),
        "tokens_per_second": round(record.tokens / seconds["train"]),
        "train_seconds": spent["train"],
        "compile_seconds": spent["compile"],
        "evaluate_seconds": spent["evaluate"],
        "wall_seconds": spent["wall"],
    }


def _load_params(
    experiment: Experiment, layout: Layout, workdir: Path, identity: run_folder.Identity, step: int | None = None
) -> tuple[int, weights.Params]:
    """Returns a checkpoint's step and params: of `step`, else of the best, or the mean of the newest, as configured.

    Raises:
      UserError: no such checkpoint, none undamaged, or it is of a run with another identity.
    """
    shapes, config, directory = experiment.state_shapes(layout), experiment.checkpoint, workdir / CHECKPOINTS
    if step is not None or config.average == 1:
        restored = checkpoint.load(directory, shapes, identity, step=step, best=config.best)
        found = [(restored[0], restored[1].params)] if restored else []
    else:
        newest = checkpoint.load_newest(directory, shapes, config.average, identity)
        found = [(saved, state.params) for saved, state, _ in newest]
    if not found:
        raise UserError(f"{workdir}: no checkpoint yet; train the run first")
    step, params = found[0]
    if len(found) > 1:
        params = jax.tree.map(lambda *copies: sum(copies) / len(copies), *(params for _, params in found))
    return step, params


def load(
    workdir: Place, step: int | None = None, decode: Changes = None, config_file: Place | None = None
) -> tuple[Experiment, int, weights.Params]:
    """Returns the run's experiment, and the step and params of a checkpoint: of `step`, else those the run reports.

    Attention is computed by XLA: another device than that of the training may do, and its weights can be looked at.

    Args:
      decode: keys of the `decode` section to change, by `changed_decode`.
      config_file: the run's, which registers something that the config names; without it, the one at the recorded path.

    Raises:
      UserError: no run, no such checkpoint, none undamaged, a wrong `decode` key, or the config file is missing.
    """
    workdir = folder_at(workdir, "workdir")
    config, identity, registered_by = run_folder.read_config(workdir)
    load_of_run(workdir, registered_by, config_file)
    saved = dataclasses.asdict(section(DecodeConfig, config.get("decode"), "decode"))
    built = build({**config, "decode": changed_decode(saved, decode or {})}, workdir)
    experiment = built.with_model(attention_implementation="xla")
    layout = experiment.layout_of_one_copy()
    require_state(experiment, layout)
    return experiment, *_load_params(experiment, layout, workdir, identity, step)


def evaluate(
    workdir: Place, clock: Clock, step: int | None = None, decode: Changes = None, config_file: Place | None = None
) -> dict[str, Any]:
    """Scores a checkpoint of the run in `workdir`, as `load` reads it; returns its step and the task's figures.

    Raises:
      UserError: as `load`, or the data are not those that the run was trained on.
    """
    experiment, found, params = load(workdir, step, decode, config_file)
    run_folder.require_same_data(folder_at(workdir, "workdir"), experiment.task.digests())
    figures = experiment.task.test(experiment.evaluator(clock, experiment.layout_of_one_copy())(params))
    figures.pop("samples", None)
    return {"step": found, **figures}


def generate(
    workdir: Place,
    texts: list[str],
    decode: dict[str, Any],
    *,
    n_best: int | None = None,
    max_tokens: int = 0,
    seed: int | None = None,
    step: int | None = None,
    config_file: Place | None = None,
) -> list[list[Answer]]:
    """Generates texts from prompts with a checkpoint of the run in `workdir`, as `generate_texts`.

    Args:
      decode: keys of the `decode` section to change.
      n_best: hypotheses that the caller wants; a beam has to be as wide.
      max_tokens: tokens to generate at most; 0 for as many as the model's positions allow.
      seed: of the tokens drawn where `decode` samples, 0 if None.
      step, config_file: as of `load`.

    Raises:
      UserError: a prompt that the task cannot read or the model cannot hold; the text gives its number.
    """
    if not texts:
        raise UserError("no prompt: give some as arguments, or one a line on standard input")
    experiment, _, params = load(workdir, step, decode, config_file)
    width = experiment.decode.beam_width
    if n_best and width == 1:
        raise UserError("n_best: only beam search scores its hypotheses; set decode.beam_width above 1")
    if n_best and n_best > width:
        raise UserError(f"n_best: {n_best} is more than the hypotheses of decode.beam_width {width}")
    if seed is not None and not experiment.decode.temperature:
        raise UserError("seed: no token is drawn; set decode.temperature above 0")
    return generate_texts(experiment, params, texts, max_tokens, seed or 0)
