"""Config in, run folder out: the one place where task, model, optimizer and training meet."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from ml_collections import ConfigDict

from fxf import run_folder, weights
from fxf.config import (
    CheckpointConfig,
    DecodeConfig,
    LogConfig,
    OptimizerConfig,
    TrainConfig,
    defaults,
    one_of,
    section,
)
from fxf.decoding.predict import make_predictor
from fxf.errors import UserError, nearest
from fxf.models import MODELS
from fxf.models.model import Model
from fxf.tasks import TASKS
from fxf.tasks.task import Answer, Scorer, Setting, Task
from fxf.training import checkpoint
from fxf.training.checkpoint import Checkpoints
from fxf.training.loop import fit
from fxf.training.metrics import Clock, MetricsLog
from fxf.training.optimizer import make_optimizer, make_schedule
from fxf.training.step import (
    Metrics,
    TrainState,
    batch_loss,
    init_state,
    make_fed_train_steps,
    make_train_steps,
    run_keys,
)

CHECKPOINTS = "checkpoints"
SECTIONS = {
    "optimizer": OptimizerConfig,
    "train": TrainConfig,
    "decode": DecodeConfig,
    "checkpoint": CheckpointConfig,
    "log": LogConfig,
}


class Experiment(NamedTuple):
    """What a config names. `config` is the plain nested dict of all keys, as config.json holds it."""

    config: dict[str, Any]
    train: TrainConfig
    decode: DecodeConfig
    checkpoint: CheckpointConfig
    log: LogConfig
    task: Task
    model: Model
    max_len: int
    optimizer: optax.GradientTransformation
    learning_rate: Any

    @property
    def seed(self) -> int:
        return self.config["seed"]

    def new_state(self) -> TrainState:
        """Draws the state of step 0, in one compiled call."""
        init_key, _, _ = run_keys(self.seed)
        return jax.jit(lambda key: init_state(self.model, self.optimizer, key))(init_key)

    def state_shapes(self) -> TrainState:
        """Returns the state's shapes and dtypes; allocates nothing."""
        return jax.eval_shape(lambda: init_state(self.model, self.optimizer, jax.random.key(0)))

    def scorer(self, clock: Clock) -> Callable[[weights.Params], Scorer]:
        """Returns `scorer(params)`; its programs compile once, whatever the params."""
        predict = make_predictor(
            self.model, self.task.end_token, decode=self.decode, compiling=lambda: clock.measure("compile")
        )
        compiled_loss = jax.jit(lambda params, batch: batch_loss(self.model, params, batch))

        def with_params(params: weights.Params) -> Scorer:
            def loss(batch: Mapping[str, Any]) -> tuple[float, float]:
                loss_sum, weight_sum = compiled_loss(params, batch)
                return float(loss_sum), float(weight_sum)

            return Scorer(lambda prompts, max_tokens: predict(params, prompts, max_tokens), loss)

        return with_params


def default_config(task: str) -> ConfigDict:
    """Returns a config that holds every key of every section with its default, for a config file to change."""
    chosen = {**TASKS[task].sections, "model": MODELS[TASKS[task].model][0], **SECTIONS}
    return ConfigDict({"seed": 0, **{name: defaults(cls) for name, cls in chosen.items()}})


def build(config: Mapping[str, Any], folder: Path | None = None) -> Experiment:
    """Builds task, model and optimizer.

    Args:
      folder: the run folder, from which a task takes what an earlier part of the run left there.

    Raises:
      UserError: a key is unknown, missing, or holds what it cannot; or two sections do not fit each other.
    """
    registered = TASKS[_name(config, "task", TASKS)]
    model_config_class, make_model = MODELS[_name(config, "model", MODELS)]
    classes: dict[str, Any] = {**registered.sections, "model": model_config_class, **SECTIONS}
    names = ("seed", *classes)
    for name in config:
        if name not in names:
            raise UserError(f"{name}: unknown section{nearest(str(name), names)}")
    for name in names:
        if name not in config:
            raise UserError(f"{name}: missing; a config holds {', '.join(names)}")
    if type(config["seed"]) is not int or not 0 <= config["seed"] < 2**32:
        raise UserError(f"seed: expected an int from 0 to 2**32 - 1, got {config['seed']!r}")
    sections = {name: section(cls, config[name], name) for name, cls in classes.items()}
    train, saved = sections["train"], sections["checkpoint"]

    task = registered.make(sections["task"], Setting(train, sections.get("data"), config["seed"], folder))
    if config["model"]["name"] != registered.model:
        raise UserError(f"model.name: task '{config['task']['name']}' needs '{registered.model}'")
    if sections["model"].max_len < task.longest:
        too_short = f"{sections['model'].max_len} is too short; the task's sequences need {task.longest}"
        raise UserError(f"model.max_len: {too_short}")
    if train.batch_size % train.microbatches:
        raise UserError(f"train.microbatches: {train.microbatches} does not divide train.batch_size {train.batch_size}")
    if saved.best:
        one_of(saved.best, task.metrics, "checkpoint.best")
        if not train.evaluate_every:
            raise UserError("checkpoint.best: nothing is evaluated before the end; set train.evaluate_every")
    elif train.patience:
        raise UserError("train.patience: set checkpoint.best to the figure that has to improve")
    model = make_model(sections["model"], task.vocab_size)
    return Experiment(
        config={"seed": config["seed"], **{name: dataclasses.asdict(value) for name, value in sections.items()}},
        train=train,
        decode=sections["decode"],
        checkpoint=saved,
        log=sections["log"],
        task=task,
        model=model,
        max_len=sections["model"].max_len,
        optimizer=make_optimizer(sections["optimizer"], train.steps, model.spec),
        learning_rate=make_schedule(sections["optimizer"], train.steps),
    )


def _name(config: Mapping[str, Any], section_name: str, registry: Mapping[str, Any]) -> str:
    """Returns the `name` key of a section, by which its class is chosen."""
    if section_name not in config:
        raise UserError(f"{section_name}: missing; it names what to build")
    values = config[section_name]
    if not isinstance(values, Mapping) or "name" not in values:
        raise UserError(f"{section_name}: missing name; a section holds all its keys")
    return one_of(values["name"], registry, f"{section_name}.name")


def train(config: Mapping[str, Any], workdir: Path, clock: Clock, origin: dict[str, Any]) -> dict[str, Any]:
    """Trains the run in `workdir` from its newest checkpoint to its last step, and returns its result.

    It prints the samples of the task's test. A finished run is left as it is.

    Args:
      origin: what the config came from, kept in config.json.
    """
    experiment = build(config, workdir)
    task, figures = experiment.task, experiment.task.figures()
    run_folder.open_for_training(workdir, experiment.config, origin, task.files)
    finished = run_folder.read_result(workdir)
    if finished:
        print(f"{workdir}: finished already, nothing to do")
        return finished

    checkpoints = Checkpoints(workdir / CHECKPOINTS, experiment.checkpoint)
    restored = checkpoint.load(workdir / CHECKPOINTS, experiment.state_shapes())
    record: dict[str, Any] = {}
    if restored:
        step, state, record = restored
        clock.add_earlier(record["seconds"])
    else:
        step = 0
        with clock.measure("compile"):
            state = jax.block_until_ready(experiment.new_state())
    metrics_log = MetricsLog(workdir, experiment.train.steps, step, experiment.log.tensorboard)
    scorer = experiment.scorer(clock)
    try:
        if figures:
            metrics_log.say("  ".join(f"{name} {value}" for name, value in figures.items()))
        if restored:
            metrics_log.say(f"{workdir}: resuming at step {step}")
        if step < experiment.train.steps:
            train_steps, position = _make_steps(experiment, state, record, clock)
            _, record = fit(
                state,
                train_steps,
                train=experiment.train,
                checkpoint=experiment.checkpoint,
                log=experiment.log,
                learning_rate=experiment.learning_rate,
                evaluate=lambda s: task.validate(scorer(s.params)),
                metrics_log=metrics_log,
                checkpoints=checkpoints,
                clock=clock,
                position=position,
                earlier=record,
            )
    finally:
        metrics_log.close()
        checkpoints.close()
    step, params = _load_params(experiment, workdir / CHECKPOINTS)
    with clock.measure("evaluate"):
        tested = task.test(scorer(params))
    for prompt, expected, answer in tested.pop("samples", []):
        print(f"{prompt}  →  {answer}" + ("" if answer == expected else f"   (expected: {expected})"))
    result = _result(experiment, record, step, {**figures, **tested}, clock.seconds())
    run_folder.write_result(workdir, result)
    return result


def _make_steps(
    experiment: Experiment, state: TrainState, record: dict[str, Any], clock: Clock
) -> tuple[Callable[[TrainState, Any], tuple[TrainState, Metrics]], Callable[[], Any]]:
    """Returns `train_steps(state, n)`, and a function that returns where the data stand."""
    task, model, optimizer, config = experiment.task, experiment.model, experiment.optimizer, experiment.train
    if task.batches is not None:
        batches = task.batches()
        if record:
            batches.set_state(record["data"])
        fed = make_fed_train_steps(model, optimizer, config, batches, experiment.seed, lambda: clock.measure("compile"))
        return fed, batches.get_state
    assert task.batch is not None
    with clock.measure("compile"):
        most = min(experiment.log.every, config.steps)
        train_steps = make_train_steps(model, optimizer, config, task.batch, experiment.seed, most)
        return train_steps.lower(state, np.int32(0)).compile(), lambda: None


def _result(
    experiment: Experiment, record: dict[str, Any], step: int, figures: dict[str, Any], seconds: dict[str, float]
) -> dict[str, Any]:
    """Returns the flat object of result.json; `step` is that of the checkpoint that was tested."""
    spent = {name: round(value, 3) for name, value in seconds.items()}
    return {
        "task": experiment.config["task"]["name"],
        "steps": record["step"],
        "seed": experiment.seed,
        "parameters": weights.count(experiment.model.spec),
        **({"best_step": step} if experiment.checkpoint.best else {}),
        **figures,
        "train_loss": record["train_loss"],
        "tokens_per_second": round(record["tokens"] / seconds["train"]),
        "train_seconds": spent["train"],
        "compile_seconds": spent["compile"],
        "evaluate_seconds": spent["evaluate"],
        "wall_seconds": spent["wall"],
    }


def _load_params(experiment: Experiment, directory: Path, step: int | None = None) -> tuple[int, weights.Params]:
    """Returns a checkpoint's step and params: of `step`, else of the best, or the mean of the newest, as configured.

    Raises:
      UserError: no such checkpoint, or none undamaged.
    """
    shapes, config = experiment.state_shapes(), experiment.checkpoint
    if step is not None or config.average == 1:
        restored = checkpoint.load(directory, shapes, step=step, best=config.best)
        found = [(restored[0], restored[1].params)] if restored else []
    else:
        newest = checkpoint.load_newest(directory, shapes, config.average)
        found = [(saved, state.params) for saved, state, _ in newest]
    if not found:
        raise UserError(f"{directory.parent}: no checkpoint yet; train the run first")
    return found[0][0], jax.tree.map(lambda *copies: sum(copies) / len(copies), *(params for _, params in found))


def load(
    workdir: Path, step: int | None = None, decode: dict[str, Any] | None = None
) -> tuple[Experiment, int, weights.Params]:
    """Returns the run's experiment, and the step and params of a checkpoint: of `step`, else those the run reports.

    Args:
      decode: keys of the `decode` section to change.

    Raises:
      UserError: no run, no such checkpoint, none undamaged, or a wrong `decode` key.
    """
    config = run_folder.read_config(workdir)
    experiment = build({**config, "decode": {**config["decode"], **(decode or {})}}, workdir)
    return experiment, *_load_params(experiment, workdir / CHECKPOINTS, step)


def evaluate(
    workdir: Path, clock: Clock, step: int | None = None, decode: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Scores a checkpoint of the run in `workdir`; returns its step and the task's figures."""
    experiment, found, params = load(workdir, step, decode)
    figures = experiment.task.test(experiment.scorer(clock)(params))
    figures.pop("samples", None)
    return {"step": found, **figures}


def generate(
    workdir: Path,
    prompts: list[str],
    decode: dict[str, Any],
    *,
    n_best: int | None = None,
    max_tokens: int = 0,
    seed: int = 0,
    step: int | None = None,
) -> list[list[Answer]]:
    """Answers each prompt with a checkpoint of the run in `workdir`, in order: its hypotheses, the best first.

    Args:
      decode: keys of the `decode` section to change.
      n_best: hypotheses that the caller wants; a beam has to be as wide.
      max_tokens: tokens to generate at most; 0 for as many as the model's positions allow.

    Raises:
      UserError: a prompt that the task cannot read or the model cannot hold; the text gives its number.
    """
    if not prompts:
        raise UserError("no prompt: give some as arguments, or one a line on standard input")
    experiment, _, params = load(workdir, step, decode)
    width = experiment.decode.beam_width
    if n_best and width == 1:
        raise UserError("n_best: only beam search scores its hypotheses; set decode.beam_width above 1")
    if n_best and n_best > width:
        raise UserError(f"n_best: {n_best} is more than the hypotheses of decode.beam_width {width}")
    predict = make_predictor(experiment.model, experiment.task.end_token, decode=experiment.decode, seed=seed)
    return experiment.task.respond(
        lambda read, most: predict(params, read, most), prompts, max_tokens, experiment.max_len
    )
