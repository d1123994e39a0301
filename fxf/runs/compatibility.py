"""Checks that the sections of a config, its task, its model and a user's batches fit each other."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from fxf.base.config import defaults, differences, one_of, require_off
from fxf.base.errors import UserError, nearest, shortened
from fxf.base.weights import VOCABULARY, Params, flatten, leaves, shapes
from fxf.layers.kinds import ATTENTIONS, reads_positions
from fxf.models.decode_config import DecodeConfig
from fxf.models.model import Batch, Model
from fxf.models.quantized import stored_as
from fxf.tasks.language_model import LanguageModel
from fxf.tasks.task import NO_END, Task
from fxf.training.state import run_keys

log = logging.getLogger(__name__)

# Arrays of a batch that hold tokens, and the mask of each.
TOKENS = {"inputs": "input_mask", "source": "source_mask", "targets": "weights"}
READ = {*TOKENS, *TOKENS.values(), "positions", "documents", "order", "segments"}  # by fxf's models and losses


def require_fitting_sections(sections: Mapping[str, Any]) -> None:
    """Raises a UserError if the sections do not fit each other, before the task prepares its data."""
    task, train, model = sections["task"], sections["train"], sections["model"]
    if task.name == "language_model" and model.max_len < task.length:
        raise UserError(f"model.max_len: {model.max_len} is too short; the task's sequences need {task.length}")
    if task.name == "language_model" and (best := sections["checkpoint"].best):
        one_of(best.partition("/")[0], LanguageModel.metrics, "checkpoint.best")
    positions, attention = (getattr(model, name, "") for name in ("positions", "attention"))
    placing = [f"task.{name}" for name in ("mirrored", "position_range") if getattr(task, name, 0)]
    if placing and positions == "none" and not (model.window or reads_positions(model)):
        raise UserError(f"{placing[0]}: model.positions 'none' reads no positions without a model.window; leave it off")
    packed = getattr(task, "document_mask", False) and sections["data"].format != "text"
    if getattr(model, "position_range", 0) and (given := placing or ["task.document_mask"] * packed):
        raise UserError(f"{given[0]}: model.position_range draws other positions; leave one of them off")
    if packed and attention in ATTENTIONS and not ATTENTIONS[attention].by_document:
        raise UserError(f"task.document_mask: model.attention '{attention}' keeps all earlier tokens; set it to False")
    if train.batch_size % train.microbatches:
        raise UserError(f"train.microbatches: {train.microbatches} does not divide train.batch_size {train.batch_size}")


def require_fitting_model(task: Task, model: Model, sections: Mapping[str, Any]) -> None:
    """Raises a UserError if the task, the model and the other sections do not fit each other."""
    train, checkpoint, config = sections["train"], sections["checkpoint"], sections["model"]
    task_name, decode = sections["task"].name, sections["decode"]
    if config.max_len < task.longest:
        raise UserError(f"model.max_len: {config.max_len} is too short; the task's sequences need {task.longest}")
    if checkpoint.best:
        one_of(checkpoint.best, task.metrics, "checkpoint.best")
        if not train.evaluate_every:
            raise UserError("checkpoint.best: nothing is evaluated before the end; set train.evaluate_every")
    elif train.patience:
        raise UserError("train.patience: set checkpoint.best to the metric that must improve")
    if not task.generates:
        unread = {**defaults(DecodeConfig), "weights": decode.weights}  # scores read decode.weights
        require_off("decode", decode, unread, f"task '{task_name}' generates no tokens")
    elif model.prefill is None or model.step is None:
        raise UserError(f"model.name: task '{task_name}' generates tokens; '{config.name}' has no prefill and step")
    stored_as(decode.weights, model.plain)  # raises a UserError if the model has no matrices
    task.rules(decode)  # raises a UserError if the task has no tokens for texts of the section
    if decode.min_tokens and task.end_token == NO_END and not decode.ends:
        raise UserError(f"decode.min_tokens: no token ends a text of task '{task_name}'; set decode.ends too")
    if not model.loss.of_logits:
        no_logits = f"the outputs of model '{config.name}' are not logits"
        require_off("decode", decode, {"temperature": 0.0, "beam_width": 1}, no_logits)
        require_off("train", train, {"label_smoothing": 0.0}, no_logits)


def require_learnable(name: str, task: Task, model: Model, seed: int) -> None:
    """Raises a UserError if a model cannot learn from the first batch of a user's task; fxf's tasks are exempt."""
    if type(task).__module__.split(".")[0] != "fxf":
        batches, where = task.batches() if task.has("batches") else None, f"task '{name}': batch"
        if batches is not None and not hasattr(batches, "get_state"):  # which a resumed run needs
            raise UserError(f"{where}es: expected an iterator of Grain, got a {type(batches).__name__}")
        require_batch(where, first_batch(task.batch, seed) if batches is None else next(batches), model)


def first_batch(batch: Callable[..., Any], seed: int) -> Any:
    """Returns the batch of step 0 of a function of (key, step), on the host. Raises a UserError if `batch` is none."""
    if not callable(batch):
        raise UserError(f"batch: expected a function of (key, step) that returns a batch, got a {type(batch).__name__}")
    return jax.device_get(jax.jit(batch)(jax.random.fold_in(run_keys(seed).data, 0), np.int32(0)))


def require_batch(where: str, batch: Any, model: Model, microbatches: int = 1) -> None:
    """Raises a UserError if a model cannot learn from a batch.

    A batch is a dict of arrays, with weights whose sum is above 0. Targets are below the number of logits, other tokens
    below the number of rows of the model's largest table; a program would clamp others. Arrays of floats are not
    checked: they are vectors that a model of the user's reads.
    """
    if not isinstance(batch, Mapping) or "weights" not in batch:
        got = f"only {', '.join(batch)}" if isinstance(batch, Mapping) else f"a {type(batch).__name__}"
        raise UserError(f"{where}: expected a dict of arrays, among them weights; the function returns {got}")
    for name, array in batch.items():
        if not hasattr(array, "shape"):
            raise UserError(f"{where}: {name}: expected an array, got {type(array).__name__}")
    weights, targets = batch["weights"], batch.get("targets", batch["weights"])
    if (targets.shape if model.loss.of_logits else targets.shape[: weights.ndim]) != weights.shape:
        raise UserError(f"{where}: weights: expected the shape of targets, {targets.shape}, got {weights.shape}")
    if not (total := np.sum(weights)) > 0 or not np.isfinite(total):
        raise UserError(f"{where}: weights: expected finite numbers with a sum above 0, got the sum {total:g}")
    if len(weights) % microbatches:
        raise UserError(f"microbatches: {microbatches} does not divide the {len(weights)} rows of a batch")
    if not model.loss.of_logits:
        return
    params = shapes(model.spec, model.weights_dtype)
    n_logits = vocab_size_of(model, params, dict(batch))
    for name in sorted(batch.keys() - READ):
        if (near := nearest(name, READ - batch.keys())) and not _depends_on(name, model, params, dict(batch)):
            log.warning("warning: %s: %s: the model does not read it%s", where, name, near)
    tables = [w.shape[w.axes.index(VOCABULARY)] for _, w in leaves(model.spec) if VOCABULARY in w.axes]
    for name in sorted(name for name in TOKENS.keys() & batch.keys() if batch[name].dtype.kind in "iu"):
        size = n_logits if name == "targets" else max(tables, default=n_logits)
        tokens, read = np.broadcast_arrays(batch[name], np.asarray(batch.get(TOKENS[name], True)) != 0)
        if wrong := [token for token in tokens[read] if not 0 <= token < size]:
            raise UserError(f"{where}: {name}: expected tokens 0 … {size - 1}, got {wrong[0]}")


def _depends_on(name: str, model: Model, params: Params, batch: Batch) -> bool:
    """Returns whether the program of a model's logits reads an array of a batch."""
    apply = lambda x, params, batch: model.apply(params, {**batch, name: x})  # noqa: E731
    program = jax.make_jaxpr(apply)(batch[name], params, batch).jaxpr
    return any(variable is program.invars[0] for equation in program.eqns for variable in equation.invars)


def require_params(model: Model, params: Any) -> None:
    """Raises a UserError if the params are not those of the model's spec."""
    try:  # as quick as it can be, for texts that are answered one at a time
        if jax.tree.all(jax.tree.map(lambda weight, x: weight.shape == np.shape(x), model.spec, params)):
            return
    except ValueError:
        pass  # the trees differ
    expected = {path: [*weight.shape] for path, weight in leaves(model.spec)}
    found = {path: [*np.shape(value)] for path, value in flatten(params).items()} if isinstance(params, Mapping) else {}
    if found != expected:
        raise UserError(shortened(f"params: not those of this model: {differences(found, expected)}", 400))


def require_texts(model: Model, params: Params, read: dict[str, Any], end_token: int, sizes: dict[Any, int]) -> None:
    """Raises a UserError if a text is empty or has a token outside the vocabulary, which a program would clamp.

    Args:
      sizes: keeps the size of the vocabulary for the next texts, because the model is traced to find it.
    """
    one: Any = np.ones((1, 1), np.int32)
    names = ("inputs", "source", "source_mask") if read["source"] else ("inputs",)
    size = sizes.get(names) or sizes.setdefault(names, vocab_size_of(model, params, dict.fromkeys(names, one)))
    if read["source"]:
        try:
            vocab_size_of(model, params, {"inputs": one})
        except UserError:
            pass  # without a source it has no logits
        else:
            raise UserError("sources: the model reads none")
    if end_token >= size:
        raise UserError(f"end_token: expected one of the tokens 0 … {size - 1}, got {end_token}")
    for what, texts in read.items():
        for number, tokens in enumerate(texts, 1):
            if not tokens:
                raise UserError(f"{what} {number}: it is empty; expected at least one token")
            if wrong := [token for token in tokens if not 0 <= token < size]:
                raise UserError(f"{what} {number}: expected tokens 0 … {size - 1}, got {wrong[0]}")


def vocab_size_of(model: Model, params: Params, batch: Batch) -> int:
    """Returns the number of logits; raises a UserError if the model reads an array that the batch lacks."""
    try:
        return jax.eval_shape(model.apply, params, batch).shape[-1]
    except KeyError as error:
        if error.args[0] not in READ:
            raise  # a fault in a model of the user's
        raise UserError(f"the model reads {error}; a batch or the prompts have only {', '.join(batch)}") from error
