"""Checks that the sections of a config, its task and its model fit each other."""

from collections.abc import Mapping
from typing import Any

from fxf.base.config import defaults, one_of, require_off
from fxf.base.errors import UserError
from fxf.layers.kinds import ATTENTIONS
from fxf.models import MODELS
from fxf.models.decode_config import DecodeConfig
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
    positions, attention = (getattr(model, name, "") for name in ("positions", "attention"))
    for key in (f"task.{name}" for name in ("mirrored", "position_range") if getattr(task, name, 0)):
        if getattr(model, "position_range", 0):
            raise UserError(f"{key}: model.position_range draws other positions; leave one of them off")
        if positions == "none" and not model.window:
            what = "model.positions 'none' reads no positions without a model.window; leave it at its default"
            raise UserError(f"{key}: {what}")
    packed = getattr(task, "document_mask", False) and sections["data"].format != "text"
    if packed and attention in ATTENTIONS and not ATTENTIONS[attention].by_document:
        what = f"model.attention '{attention}' remembers all earlier tokens of a row"
        raise UserError(f"task.document_mask: {what}; set it to False")
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


def require_fitting_model(task: Task, model: Model, sections: Mapping[str, Any]) -> None:
    """Raises a UserError if the model cannot do what the task or another section asks for."""
    task_name, config, decode = sections["task"].name, sections["model"], sections["decode"]
    if not task.generates:
        require_off("decode", decode, defaults(DecodeConfig), f"task '{task_name}' generates no tokens")
    if task.generates and (model.prefill is None or model.step is None):
        what = f"model '{config.name}' has no prefill and step for it"
        raise UserError(f"model.name: task '{task_name}' generates tokens; {what}")
    if not model.loss.of_logits:
        no_logits = f"the outputs of model '{config.name}' are not logits"
        require_off("decode", decode, {"temperature": 0.0, "beam_width": 1}, no_logits)
        require_off("train", sections["train"], {"label_smoothing": 0.0}, no_logits)
    require_frozen(model.spec, sections["optimizer"].frozen)
