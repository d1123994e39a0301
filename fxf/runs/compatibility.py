"""Checks that the sections of a config, its task and its model fit each other."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from fxf.config import one_of
from fxf.decoding.config import DecodeConfig
from fxf.errors import UserError
from fxf.layers.attention import ATTENTIONS
from fxf.layers.positions import POSITIONS
from fxf.models import MODELS
from fxf.models.model import Model
from fxf.tasks import RegisteredTask
from fxf.tasks.task import Task
from fxf.training.fine_tuning import require_frozen


def require_fitting_sections(registered: RegisteredTask, sections: Mapping[str, Any]) -> None:
    """Raises a UserError if the sections do not fit each other, before the task prepares its data."""
    task, train, model = sections["task"], sections["train"], sections["model"]
    if not {model.name, MODELS[model.name].in_place_of} & {*registered.models}:
        fitting = " or ".join(f"'{name}'" for name in registered.models)
        raise UserError(f"model.name: task '{task.name}' needs {fitting}")
    for key in ("mirrored", "position_range"):
        if getattr(task, key, 0):
            _require_positions(f"task.{key}", model)
    if getattr(task, "document_mask", False) and sections["data"].format != "text":
        _require_separate_documents(model)
    if train.batch_size % train.microbatches:
        raise UserError(f"train.microbatches: {train.microbatches} does not divide train.batch_size {train.batch_size}")


def require_fitting_task(task: Task, sections: Mapping[str, Any]) -> None:
    """Raises a UserError if the sections do not fit the task."""
    train, saved, model = sections["train"], sections["checkpoint"], sections["model"]
    if model.max_len < task.longest:
        raise UserError(f"model.max_len: {model.max_len} is too short; the task's sequences need {task.longest}")
    if saved.best:
        one_of(saved.best, task.metrics, "checkpoint.best")
        if not train.evaluate_every:
            raise UserError("checkpoint.best: nothing is evaluated before the end; set train.evaluate_every")
    elif train.patience:
        raise UserError("train.patience: set checkpoint.best to the figure that has to improve")


def _require_separate_documents(model: Any) -> None:
    """Raises a UserError if the model cannot keep the documents of a row apart."""
    positions, attention = (getattr(model, name, "") for name in ("positions", "attention"))
    if positions in POSITIONS and POSITIONS[positions].from_tokens:
        raise UserError(f"task.document_mask: model.positions '{positions}' walks along whole rows; set it to False")
    if attention in ATTENTIONS and not ATTENTIONS[attention].scores:
        raise UserError(
            f"task.document_mask: model.attention '{attention}' remembers all earlier tokens of a row; set it to False"
        )


def _require_positions(key: str, model: Any) -> None:
    """Raises a UserError if the model does not read the positions that a key of the task gives."""
    name = getattr(model, "positions", "")
    if name in POSITIONS and POSITIONS[name].from_tokens:
        raise UserError(f"{key}: model.positions '{name}' makes them from the tokens; leave it at its default")
    if getattr(model, "position_range", 0):
        raise UserError(f"{key}: model.position_range draws other positions; leave one of them off")
    if name == "none" and not model.window:
        raise UserError(
            f"{key}: model.positions 'none' reads no positions without a model.window; leave it at its default"
        )


def require_fitting_model(task: Task, model: Model, sections: Mapping[str, Any]) -> None:
    """Raises a UserError if the model cannot do what the task or another section asks for."""
    task_name, model_name, train = sections["task"].name, sections["model"].name, sections["train"]
    if task.generates:
        _require_generation(task_name, sections["model"], model, sections["decode"])
    else:
        for key, value in dataclasses.asdict(DecodeConfig()).items():
            if getattr(sections["decode"], key) != value:
                raise UserError(f"decode.{key}: task '{task_name}' generates no tokens; leave it at {value}")
    require_frozen(model.spec, sections["optimizer"].frozen)
    if train.label_smoothing and not model.loss.of_logits:
        raise UserError(f"train.label_smoothing: model '{model_name}' does not read it; leave it at 0")


def _require_generation(task: str, config: Any, model: Model, decode: DecodeConfig) -> None:
    """Raises a UserError if the model cannot generate tokens, or not by the method of the `decode` section."""
    name, copies = config.name, getattr(config, "copies", 1)
    if model.prefill is None or model.step is None:
        of_copies = f" with model.copies {copies}" if copies > 1 else ""
        needs = f"model.name: task '{task}' generates tokens"
        raise UserError(f"{needs}; model '{name}'{of_copies} has no prefill and step for it")
    for key in ("temperature", "beam_width"):
        default = getattr(DecodeConfig(), key)
        if not model.loss.of_logits and getattr(decode, key) != default:
            raise UserError(f"decode.{key}: the outputs of model '{name}' are not logits; leave it at {default}")
