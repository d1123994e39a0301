"""What a user's own task and functions take and return, checked where fxf first meets them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fxf.errors import UserError, nearest
from fxf.machine.random_keys import random_key
from fxf.runs.signatures import described, require_takes
from fxf.training.state import run_keys

# The arguments of a task's functions.
OF_TASKS = {
    "batch": "key, step",
    "batches": "",
    "largest_batch": "",
    "figures": "",
    "digests": "",
    "validate": "evaluator",
    "test": "evaluator",
    "test_pairs": "evaluator, pairs",
    "decode": "evaluator, prompts, max_tokens",
    "to_prompts": "texts, max_tokens, max_len",
    "to_text": "text, tokens",
    "to_batch": "text, answer",
    "token_name": "token",
}
# Names of arrays that models read, and the mask of those that hold tokens.
MASKS = {"inputs": "input_mask", "source": "source_mask", "targets": "weights"}
READ = (*MASKS, *MASKS.values(), "positions", "source_positions", "documents", "segments", "row")
PLACES = {"positions": "inputs", "documents": "inputs", "source_positions": "source"}


def shapes_of_batch(where: str, batch: Callable[[jax.Array, Any], Any]) -> Any:
    """Returns the shapes of a batch. Raises a UserError if it is not a valid batch for a model."""
    require_takes(where, batch, OF_TASKS["batch"])

    def checked(key: jax.Array, step: Any) -> Any:
        found = batch(key, step)
        _require_arrays(where, found)
        return found

    return jax.eval_shape(checked, random_key(0), np.int32(0))


def _require_arrays(where: str, batch: Any) -> None:
    if not isinstance(batch, Mapping) or not {"targets", "weights"} <= {*batch}:
        found = ", ".join(map(str, batch)) if isinstance(batch, Mapping) else type(batch).__name__
        raise UserError(f"{where}: expected a dict of arrays, targets and weights among them, got {found}")
    for name, x in batch.items():
        if not hasattr(x, "shape") or not hasattr(x, "dtype"):
            raise UserError(f"{where}: {name}: expected an array, got {type(x).__name__}")
        if x.size == 0:
            raise UserError(f"{where}: {name}: expected elements, got none in {described(x)}")
        if name not in READ and (near := nearest(str(name), READ)):
            raise UserError(f"{where}: {name}: no model reads it{near}")
    sizes = {name: list(x.shape) for name, x in batch.items()}
    if sizes["targets"] != sizes["weights"]:
        raise UserError(f"{where}: targets {sizes['targets']} and weights {sizes['weights']} differ in shape")
    if wrong := [name for name, size in sizes.items() if size[:1] != sizes["targets"][:1] or not size]:
        rows = f"as many rows as targets {sizes['targets']}"
        raise UserError(f"{where}: {wrong[0]}: expected an array with {rows}, got {sizes[wrong[0]]}")
    if jnp.issubdtype(batch["weights"].dtype, jnp.complexfloating):
        raise UserError(f"{where}: weights: expected real numbers, got {described(batch['weights'])}")


def require_first_batch(where: str, batch: Mapping[str, Any], vocab_size: int | None, longest: int | None) -> None:
    """Raises a UserError if the values of a batch are not valid for a model.

    Args:
      batch: arrays on the host.
      vocab_size: the tokens are 0 … vocab_size - 1; None if the model reads no tokens.
      longest: the maximum number of tokens in a row; None for no maximum.
    """
    weights = np.asarray(batch["weights"], np.float64)
    if not np.isfinite(weights).all() or not weights.sum() > 0:
        raise UserError(f"{where}: weights: expected finite numbers with a sum above 0, got the sum {weights.sum():g}")
    for name in MASKS:
        if name not in batch or vocab_size is None:
            continue
        x, read = batch[name], np.asarray(batch.get(MASKS[name], True)) != 0
        if not np.issubdtype(x.dtype, np.integer):
            raise UserError(f"{where}: {name}: expected ints, got {described(x)}")
        if longest is not None and x.ndim > 1 and x.shape[1] > longest:
            raise UserError(f"{where}: {name}: expected at most {longest} tokens in a row, got {x.shape[1]}")
        wrong = x[((x < 0) | (x >= vocab_size)) & np.broadcast_to(read, x.shape)]
        if len(wrong):
            raise UserError(f"{where}: {name}: expected tokens 0 … {vocab_size - 1}, got {wrong[0]}")
    for name, of in PLACES.items():
        if name in batch and of in batch and batch[name].shape != batch[of].shape:
            raise UserError(
                f"{where}: {name} {list(batch[name].shape)} and {of} {list(batch[of].shape)} differ in shape"
            )


def require_learnable(name: str, task: Any, of_logits: bool, seed: int) -> None:
    """Raises a UserError if a model cannot learn from the first batch of a user's task; those of fxf are known."""
    if not is_of_users(task):
        return
    where = f"task '{name}': batch"
    if task.batches is not None:
        first = next(task.batches())
        _require_arrays(where, first)
    else:
        key = jax.random.fold_in(run_keys(seed).data, 0)
        first = jax.device_get(jax.jit(task.batch)(key, np.int32(0)))
    require_first_batch(where, first, task.vocab_size if of_logits else None, task.longest)


def figures_of(where: str, found: Any, metrics: Sequence[str] = (), best: str = "") -> dict[str, Any]:
    """Returns the figures of a score as plain numbers and texts by name; `samples` and `answers` stay.

    Args:
      metrics: those of the task, of which at least one has to be there, as a number.
      best: the one by which checkpoints are chosen, which has to be there.

    Raises:
      UserError: it is not a dict of figures, its samples are not valid, or a figure that has to be there is missing.
    """
    if not isinstance(found, Mapping):
        raise UserError(f"{where}: expected a dict of figures by name, got {type(found).__name__}")
    plain: dict[str, Any] = {}
    named = [each.removeprefix("-") for each in metrics]
    for name, value in found.items():
        number = value.item() if getattr(value, "size", 0) == 1 else value
        figure = isinstance(number, int | float) or (isinstance(number, str) and name not in named)
        if name not in ("samples", "answers") and not (isinstance(name, str) and figure):
            raise UserError(f"{where}: {name}: expected a number, got {number!r}")
        plain[name] = number
    for row in plain.get("samples", ()):
        texts = row if isinstance(row, tuple | list) else ()
        if len(texts) != 3 or not all(isinstance(text, str | None) for text in texts) or texts[2] is None:
            raise UserError(f"{where}: samples: expected tuples of (prompt, expected, answer), got {row!r}")
    if named and not plain.keys() & set(named):
        raise UserError(f"{where}: missing {' or '.join(named)}, which the task's metrics name; got {', '.join(plain)}")
    if best and best.removeprefix("-") not in plain:
        raise UserError(f"{where}: missing {best.removeprefix('-')}, checkpoint.best; got {', '.join(plain)}")
    return plain


def is_of_users(task: Any) -> bool:
    """Returns whether a task is not one of fxf's own."""
    return type(task).__module__.split(".")[0] != "fxf"
