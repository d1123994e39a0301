"""Config in, run folder out: the one place where task, model, optimizer and training meet."""

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from ml_collections import ConfigDict

from fxf import run_folder, weights
from fxf.config import CheckpointConfig, LogConfig, OptimizerConfig, TrainConfig, defaults, one_of, section
from fxf.decoding.predict import make_predictor
from fxf.decoding.sampling import Sampling
from fxf.errors import UserError, nearest
from fxf.models import MODELS
from fxf.models.model import Model
from fxf.tasks import TASKS
from fxf.tasks.task import Task
from fxf.training import checkpoint
from fxf.training.checkpoint import Checkpoints
from fxf.training.loop import fit
from fxf.training.metrics import Clock, MetricsLog
from fxf.training.optimizer import make_optimizer, make_schedule
from fxf.training.step import TrainState, init_state, make_train_steps, run_keys

CHECKPOINTS = "checkpoints"
SECTIONS = {"optimizer": OptimizerConfig, "train": TrainConfig, "checkpoint": CheckpointConfig, "log": LogConfig}


class Experiment(NamedTuple):
    """What a config names. `config` is the plain nested dict of all keys, as config.json holds it."""

    config: dict[str, Any]
    train: TrainConfig
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


def default_config(task: str, model: str = "transformer_lm") -> ConfigDict:
    """Returns a config that holds every key of every section with its default, for a config file to change."""
    chosen = {"task": TASKS[task][0], "model": MODELS[model][0], **SECTIONS}
    return ConfigDict({"seed": 0, **{name: defaults(cls) for name, cls in chosen.items()}})


def build(config: Mapping[str, Any]) -> Experiment:
    """Builds task, model and optimizer.

    Raises:
      UserError: a key is unknown, missing, or holds what it cannot; or two sections do not fit each other.
    """
    names = ("seed", "task", "model", *SECTIONS)
    for name in config:
        if name not in names:
            raise UserError(f"{name}: unknown section{nearest(str(name), names)}")
    for name in names:
        if name not in config:
            raise UserError(f"{name}: missing; a config holds {', '.join(names)}")
    if type(config["seed"]) is not int or not 0 <= config["seed"] < 2**32:
        raise UserError(f"seed: expected an int from 0 to 2**32 - 1, got {config['seed']!r}")
    task_config, make_task = _registered(TASKS, config, "task")
    model_config, make_model = _registered(MODELS, config, "model")
    sections: dict[str, Any] = {name: section(cls, config[name], name) for name, cls in SECTIONS.items()}
    train, optimizer_config = sections["train"], sections["optimizer"]

    task = make_task(task_config, train.batch_size)
    if model_config.max_len < task.longest:
        raise UserError(f"model.max_len: {model_config.max_len} is too short; the task's sequences need {task.longest}")
    best = sections["checkpoint"].best
    if best:
        one_of(best, task.metrics, "checkpoint.best")
    model = make_model(model_config, task.vocab_size)
    plain = {"task": task_config, "model": model_config, **sections}
    return Experiment(
        config={"seed": config["seed"], **{name: dataclasses.asdict(value) for name, value in plain.items()}},
        train=train,
        checkpoint=sections["checkpoint"],
        log=sections["log"],
        task=task,
        model=model,
        max_len=model_config.max_len,
        optimizer=make_optimizer(optimizer_config, train.steps, model.spec),
        learning_rate=make_schedule(optimizer_config, train.steps),
    )


def _registered(registry: dict[str, tuple[Any, Any]], config: Mapping[str, Any], name: str) -> tuple[Any, Any]:
    """Returns the section, read by the class that its `name` key chooses, and what builds from it."""
    values = config[name]
    if not isinstance(values, Mapping) or "name" not in values:
        raise UserError(f"{name}: missing name; a section holds all its keys")
    cls, make = registry[one_of(values["name"], registry, f"{name}.name")]
    return section(cls, values, name), make


def train(config: Mapping[str, Any], workdir: Path, clock: Clock, origin: dict[str, Any]) -> dict[str, Any]:
    """Trains the run in `workdir` from its newest checkpoint to its last step, and returns its result.

    A finished run is left as it is.

    Args:
      origin: what the config came from, kept in config.json.
    """
    experiment = build(config)
    run_folder.open_for_training(workdir, experiment.config, origin)
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
    try:
        if restored:
            metrics_log.say(f"{workdir}: resuming at step {step}")
        if step < experiment.train.steps:
            with clock.measure("compile"):
                steps_in_call = min(experiment.log.every, experiment.train.steps)
                train_steps = make_train_steps(
                    experiment.model, experiment.optimizer, experiment.task.batch, experiment.seed, steps_in_call
                )
                compiled = train_steps.lower(state, np.int32(0)).compile()
            predict = make_predictor(
                experiment.model, experiment.task.end_token, compiling=lambda: clock.measure("compile")
            )
            _, record = fit(
                state,
                compiled,
                train=experiment.train,
                checkpoint=experiment.checkpoint,
                log=experiment.log,
                learning_rate=experiment.learning_rate,
                evaluate=lambda s: experiment.task.evaluate(functools.partial(predict, s.params)),
                metrics_log=metrics_log,
                checkpoints=checkpoints,
                clock=clock,
                earlier=record,
            )
    finally:
        metrics_log.close()
        checkpoints.close()
    result = _result(experiment, record, clock.seconds())
    run_folder.write_result(workdir, result)
    return result


def _result(experiment: Experiment, record: dict[str, Any], seconds: dict[str, float]) -> dict[str, Any]:
    steps, spent = experiment.train.steps, {name: round(value, 3) for name, value in seconds.items()}
    return {
        "task": experiment.config["task"]["name"],
        "steps": steps,
        "seed": experiment.seed,
        "parameters": weights.count(experiment.model.spec),
        **record["evaluated"],
        "train_loss": record["train_loss"],
        "tokens_per_second": round(record["tokens"] / seconds["train"]),
        "train_seconds": spent["train"],
        "compile_seconds": spent["compile"],
        "evaluate_seconds": spent["evaluate"],
        "wall_seconds": spent["wall"],
    }


def load(workdir: Path, step: int | None = None) -> tuple[Experiment, int, TrainState]:
    """Returns the run's experiment and the state of a checkpoint: of `step`, else its best, else its newest.

    Raises:
      UserError: no run, no such checkpoint, or none undamaged.
    """
    experiment = build(run_folder.read_config(workdir))
    directory, best = workdir / CHECKPOINTS, experiment.checkpoint.best
    restored = checkpoint.load(directory, experiment.state_shapes(), step=step, best=best)
    if restored is None:
        raise UserError(f"{workdir}: no checkpoint yet; train the run first")
    return experiment, restored[0], restored[1]


def evaluate(workdir: Path, clock: Clock, step: int | None = None) -> dict[str, Any]:
    """Scores a checkpoint of the run in `workdir`; returns its step and the task's figures."""
    experiment, found, state = load(workdir, step)
    predict = make_predictor(experiment.model, experiment.task.end_token, compiling=lambda: clock.measure("compile"))
    return {"step": found, **experiment.task.evaluate(functools.partial(predict, state.params))}


def generate(
    workdir: Path,
    prompts: list[str],
    sampling: Sampling,
    *,
    max_tokens: int = 0,
    seed: int = 0,
    step: int | None = None,
) -> list[str]:
    """Continues each prompt with a checkpoint of the run in `workdir`, in order.

    Args:
      max_tokens: tokens to generate at most; 0 for as many as the model's positions allow.

    Raises:
      UserError: a prompt that the task cannot read or the model cannot hold; the text gives its number.
    """
    if not prompts:
        raise UserError("no prompt: give some as arguments, or one a line on standard input")
    experiment, _, state = load(workdir, step)
    task, max_len = experiment.task, experiment.max_len
    encoded = []
    for number, prompt in enumerate(prompts, 1):
        try:
            encoded.append(task.encode(prompt))
        except UserError as error:
            raise UserError(f"prompt {number}: {error}") from None
        if len(encoded[-1]) + max(max_tokens, 1) > max_len:
            needed = f"{len(encoded[-1])} tokens and {max(max_tokens, 1)} to generate"
            raise UserError(f"prompt {number}: {needed}; model.max_len is {max_len}")
    longest = max(map(len, encoded))
    lengths = np.array([len(tokens) for tokens in encoded])
    padded = np.array([tokens + [0] * (longest - len(tokens)) for tokens in encoded])
    predict = make_predictor(experiment.model, task.end_token, sampling=sampling, seed=seed)
    generated = predict(state.params, padded, lengths, max_tokens or max_len - longest)
    return [task.decode(_before(task.end_token, row)) for row in generated.tolist()]


def _before(end_token: int, tokens: list[int]) -> list[int]:
    return tokens[: tokens.index(end_token)] if end_token in tokens else tokens
