"""From a config to an experiment: the one place where task, model and optimizer meet."""

import copy
import dataclasses
import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from ml_collections import ConfigDict

from fxf.base.config import arguments, defaults, fields_of, one_of, registered_section, section
from fxf.base.devices import require_devices, target_devices
from fxf.base.errors import UserError, nearest
from fxf.base.files import digest
from fxf.base.on_cpu import drawing_options
from fxf.base.random_keys import seed_of
from fxf.base.status import stage
from fxf.layers.flash_attention import kernel_of
from fxf.models import MODELS
from fxf.models.decode_config import DecodeConfig
from fxf.models.lora import LORA, LoraConfig, lora
from fxf.models.model import Model
from fxf.runs import compatibility, guests, run_folder
from fxf.runs.source import StartConfig, folder_of_files
from fxf.tasks import TASKS
from fxf.tasks.task import RunInfo, Task
from fxf.training import state
from fxf.training.checkpoint import CheckpointConfig
from fxf.training.fine_tuning import require_frozen, without_frozen_gradient
from fxf.training.log import LogConfig
from fxf.training.optimizer import OPTIMIZERS, OptimizerConfig, make_optimizer
from fxf.training.parallel import ParallelConfig
from fxf.training.sharding import Layout, make_layout, require_divisible
from fxf.training.state import Hyperparameters, TrainState
from fxf.training.step import TrainConfig, Trainer, with_arrays

# The sections that every config has besides those of its task and its model, and the classes that read them.
SECTIONS = {
    "start": StartConfig,
    LORA: LoraConfig,
    "optimizer": OptimizerConfig,
    "train": TrainConfig,
    "parallel": ParallelConfig,
    "decode": DecodeConfig,
    "checkpoint": CheckpointConfig,
    "log": LogConfig,
}

# The sections whose key `name` says what to build.
NAMED: dict[str, Mapping[str, Any]] = {"task": TASKS, "model": MODELS, "optimizer": OPTIMIZERS}

# The programs that experiments of one process share, by `Experiment.program_key`.
ProgramCache = dict[str, dict[Any, dict[Any, Any]]]


class Experiment(NamedTuple):
    """The parts that a config names: its sections, each parsed once, and what is built from them.

    Attributes:
      config: the plain nested dict of all keys, as config.json holds it.
      optimizer: the optimizer of `optimizer_config`, for the weights of the model.
      programs: the compiled programs, by use and layout; experiments may share them.
      draft: a smaller model with plain params, and how many tokens it drafts for a step of decoding to check.
    """

    config: dict[str, Any]
    start: StartConfig
    lora: LoraConfig
    train: TrainConfig
    parallel: ParallelConfig
    decode: DecodeConfig
    checkpoint: CheckpointConfig
    log: LogConfig
    model_config: Any
    optimizer_config: OptimizerConfig
    task: Task
    model: Model
    optimizer: optax.GradientTransformation
    programs: dict[Any, dict[Any, Any]]
    draft: tuple[Model, Any, int] | None = None

    @property
    def seed(self) -> int:
        return self.config["seed"]

    @property
    def max_len(self) -> int:
        return self.model_config.max_len

    def hyperparameters(self) -> Hyperparameters:
        """Returns the numbers that a training step reads as arguments."""
        return state.hyperparameters(self.seed, self.train, self.optimizer_config, self.model.weights_dtype)

    def trainer(self, layout: Layout) -> Trainer:
        """Returns the parts of a training step."""
        model = without_frozen_gradient(self.model, self.optimizer_config.frozen)
        return Trainer(model, self.optimizer, self.train, layout)

    def layout(self) -> Layout:
        """Returns the layout of training over all devices.

        Raises:
          UserError: `parallel`, a batch or the implementation of attention does not fit the devices.
        """
        if getattr(self.model_config, "attention_implementation", "xla") == "flash":
            kernel_of(self.model_config)
        layout = make_layout(self.parallel, target_devices())
        require_divisible(layout, self.train.batch_size, self.train.microbatches)
        if self.parallel.sequence > 1:  # the shapes of a batch may take long to find
            for batch in self.task.batch_shapes():
                layout.require_divisible_sequences(batch)
        return layout

    def layout_of_one_copy(self) -> Layout:
        """Returns a layout with one copy of the weights, sharded as in training if there are enough devices."""
        parallel = dataclasses.replace(self.parallel, data=1, expert=1, sequence=1, slices=1)
        devices = target_devices()
        if parallel.fsdp * parallel.tensor > len(devices):
            parallel = dataclasses.replace(parallel, fsdp=1, tensor=1)
        return make_layout(parallel, devices)

    def with_model(self, **changes: Any) -> "Experiment":
        """Returns the experiment with other values of the model's keys; keys that the model does not have are left out.

        The optimizer is made again for the weights of the new model; `config` stays.
        """
        known = {name: value for name, value in changes.items() if hasattr(self.model_config, name)}
        changed = dataclasses.replace(self.model_config, **known)
        return self if changed == self.model_config else self._with_model(changed)

    def with_vocabulary(self, size: int) -> "Experiment":
        """Returns the experiment with a model of `size` tokens, as another tokenizer needs; the data stay."""
        task = copy.copy(self.task)
        task.vocab_size = size
        return self._replace(task=task)._with_model(self.model_config)

    def with_plain_weights(self) -> "Experiment":
        """Returns the experiment whose model has the plain weights, as `model.to_plain` returns them."""
        return self if self.model.plain is self.model else self._of_model(self.model.plain)

    def _with_model(self, config: Any) -> "Experiment":
        model = lora(MODELS[config.name].make(config, self.task.vocab_size), self.lora)
        model = model.plain if self.model.plain is self.model else model
        return self._replace(model_config=config)._of_model(model)

    def _of_model(self, model: Model) -> "Experiment":
        optimizer = make_optimizer(self.optimizer_config, self.train.steps, model.spec)
        return self._replace(model=model, optimizer=optimizer, programs=defaultdict(dict))

    def new_state(self, layout: Layout, given: Mapping[str, jax.Array] | None = None) -> TrainState:
        """Returns the state of step 0, with the weights `given` by path. One compiled call draws the others."""
        jitted = jax.jit(
            lambda seed, given: state.init_state(self.model, self.optimizer, state.run_keys(seed).params, given),
            out_shardings=state.state_shardings(self.model, self.optimizer, layout),
            compiler_options=drawing_options(),
        )
        return self.programs["state", layout].setdefault("new", jitted)(np.uint32(self.seed), dict(given or {}))

    def state_shapes(self, layout: Layout) -> TrainState:
        """Returns the state's shapes, dtypes and shardings; allocates nothing."""
        return state.state_shapes(self.model, self.optimizer, layout)

    def made_in(self, workdir: Path, started_from: Mapping[str, str]) -> run_folder.RunInputs:
        """Returns what a run in `workdir` is made from. `started_from` are the digests of the weights that it takes."""
        data = {**self.task.digests(), **guests.digests(self.config, workdir), **started_from}
        return run_folder.RunInputs(workdir, self.config, data, self.task.files)

    def sharing(self, kept: ProgramCache | None, use: str = "") -> "Experiment":
        """Returns the experiment with the programs of an equal one in `kept`; if there is none, `kept` gets its own.

        Args:
          use: the use of the programs, which is part of their key.
        """
        if kept is None:
            return self
        return self._replace(programs=kept.setdefault(use + self.program_key(), self.programs))

    def program_key(self) -> str:
        """Returns a digest that two experiments have in common only if they compile the same programs.

        Programs depend neither on `Hyperparameters`, which they read as arguments, nor on the keys that say when a run
        is scored and saved and what it writes. What a task computes inside a program is compared by its trace, because
        it may depend on the seed.
        """
        task, train = self.task, self.config["train"]
        switches = {name: train[name] > 0 for name in ("label_smoothing", "skip_nonfinite")}
        keys = {
            **self.config,
            **dict.fromkeys(("seed", "checkpoint")),
            "log": self.log.every,  # the most steps of a call
            "train": {**train, **switches, **dict.fromkeys(("evaluate_every", "patience"))},
            "optimizer": {**self.config["optimizer"], **dict.fromkeys(arguments(self.optimizer_config))},
        }
        batches = "" if task.has("batches") else with_arrays(task.batch)[2]
        task_parts = [task.vocab_size, task.end_token, sorted(task.digests().items()), batches]
        return digest(json.dumps([keys, task_parts, guests.record(self.config)], sort_keys=True).encode())


def default_config(task: str, model: str = "", optimizer: str = "adam") -> ConfigDict:
    """Returns a config that holds every key of every section with its default, for a config file to change.

    Args:
      model: a model that fits the task; by default the first one.

    Raises:
      UserError: a name is not registered.
    """
    registered = TASKS[one_of(task, TASKS, "task.name")]
    model = one_of(model or registered.models[0], MODELS, "model.name")
    classes = classes_of(task, model, one_of(optimizer, OPTIMIZERS, "optimizer.name"))
    config = ConfigDict({"seed": 0, **{name: defaults(cls) for name, cls in classes.items()}})
    config.task.name, config.model.name, config.optimizer.name = task, model, optimizer
    return config


def classes_of(task: str, model: str, optimizer: str) -> dict[str, Any]:
    """Returns the classes that read the sections of a config with these names, by section."""
    named = {"model": MODELS[model].config, **SECTIONS, "optimizer": OPTIMIZERS[optimizer].config}
    return {**TASKS[task].sections, **named}


@stage("preparing")
def build(config: Mapping[str, Any] | ConfigDict, folder: Path | None = None) -> Experiment:
    """Builds task, model and optimizer.

    Args:
      config: nested, as `default_config` returns it or as plain dicts; an absent key or section has its default.
      folder: the run folder, from which the task of a resumed run reads its files.

    Raises:
      UserError: a key is unknown, missing or wrong; two sections do not fit each other; or there is no device.
    """
    require_devices()
    sections, seed = sections_of(config), seed_of(config.get("seed", 0))
    start = sections["start"]
    run_info = RunInfo(sections["train"], sections.get("data"), seed, folder_of_files(start, folder))
    if run_info.data is not None:
        model_of(sections)  # a wrong key is an error before the data are prepared, which may take long
    task = TASKS[sections["task"].name].make(sections["task"], run_info)
    model, optimizer = model_of(sections, task.vocab_size)
    compatibility.require_fitting_model(task, model, sections)
    return Experiment(
        config={"seed": seed, **{name: dataclasses.asdict(value) for name, value in sections.items()}},
        **{name: sections[name] for name in SECTIONS if name != "optimizer"},
        model_config=sections["model"],
        optimizer_config=sections["optimizer"],
        task=task,
        model=model,
        optimizer=optimizer,
        programs=defaultdict(dict),
    )


def sections_of(config: Mapping[str, Any] | ConfigDict) -> dict[str, Any]:
    """Returns each section of a config as an instance of its class; an absent one has its defaults.

    Raises:
      UserError: a section or a key is unknown, a key has a wrong value, or two sections do not fit each other.
    """
    config = config.to_dict() if isinstance(config, ConfigDict) else config
    if isinstance(given := config.get("optimizer", {}), Mapping):
        config = {**config, "optimizer": {"name": OptimizerConfig.name, **given}}
    task, model, optimizer = (_named(config, section_name, registry) for section_name, registry in NAMED.items())
    if not {model, MODELS[model].in_place_of} & {*TASKS[task].models}:  # checked before its keys
        fitting = " or ".join(f"'{name}'" for name in TASKS[task].models)
        raise UserError(f"model.name: task '{task}' needs {fitting}")
    classes = classes_of(task, model, optimizer)
    for name in config:
        if name not in ("seed", *classes):
            keys = [f"{each}.{field}" for each, cls in classes.items() for field in fields_of(cls)]
            known = f"; task '{task}' has {', '.join(classes)}"
            raise UserError(f"{name}: unknown section{nearest(str(name), [*classes, *keys]) or known}")
    readers: dict[str, Any] = dict.fromkeys(NAMED, registered_section)
    sections = {name: readers.get(name, section)(cls, config.get(name, {}), name) for name, cls in classes.items()}
    compatibility.require_fitting_sections(sections)
    return sections


def model_of(sections: Mapping[str, Any], vocab_size: int = 2**12) -> tuple[Model, optax.GradientTransformation]:
    """Returns the model and the optimizer of a config's sections; before the vocabulary is known, of 4,096 tokens."""
    model = lora(MODELS[sections["model"].name].make(sections["model"], vocab_size), sections[LORA])
    require_frozen(model.spec, sections["optimizer"].frozen)
    return model, make_optimizer(sections["optimizer"], sections["train"].steps, model.spec)


def _named(config: Mapping[str, Any], section_name: str, registry: Mapping[str, Any]) -> str:
    """Returns the `name` key of a section, which names an entry of the registry."""
    values = config.get(section_name)
    if not isinstance(values, Mapping) or "name" not in values:
        raise UserError(f"{section_name}: missing name, which says what to build")
    return one_of(values["name"], registry, f"{section_name}.name")
