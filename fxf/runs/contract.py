"""What a user's own task and functions take and return, checked where fxf first meets them."""

import re
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
    "scored_data": "",
    "validate": "evaluator",
    "test": "evaluator",
    "test_pairs": "evaluator, pairs",
    "decode": "evaluator, groups",
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
    for name in (name for name in (*PLACES, "segments") if name in batch):
        if not np.issubdtype(batch[name].dtype, np.integer) or np.any(batch[name] < 0):
            raise UserError(f"{where}: {name}: expected ints of at least 0, got {described(batch[name])}")
    for name, of in PLACES.items():
        if name in batch and of in batch and batch[name].shape != batch[of].shape:
            raise UserError(
                f"{where}: {name} {list(batch[name].shape)} and {of} {list(batch[of].shape)} differ in shape"
            )


def right_tokens(batch: Mapping[str, Any], vocab_size: int) -> jax.Array:
    """Returns whether all tokens that are read are 0 … vocab_size - 1; traceable."""
    right = jnp.bool_(True)
    for name in (name for name in MASKS if name in batch):
        x, read = batch[name], jnp.asarray(batch.get(MASKS[name], True)) != 0
        right &= jnp.all(((x >= 0) & (x < vocab_size)) | ~jnp.broadcast_to(read, x.shape))
    return right


class Checked:
    """Batches of a user's function, whose weights are NaN where a token is none of the model's.

    The loss of such a step is then not finite, and `require` says why. Arguments as of `require_first_batch`.
    """

    def __init__(
        self, where: str, batch: Callable[..., Any], vocab_size: int | None, longest: int | None, seed: int
    ) -> None:
        self._where, self._batch, self._seed = where, batch, seed
        self._vocab_size, self._longest = vocab_size, longest

    def batch(self, key: jax.Array, step: Any) -> Any:
        """Returns the batch of a step; traceable."""
        found = self._batch(key, step)
        if self._vocab_size is None:
            return found
        weights = jnp.asarray(found["weights"])
        weights = weights if jnp.issubdtype(weights.dtype, jnp.floating) else weights.astype(jnp.float32)
        return {**found, "weights": jnp.where(right_tokens(found, self._vocab_size), weights, jnp.nan)}

    def require(self, step: int) -> None:
        """Raises a UserError if the batch of a step is none that a model can learn from."""
        key = jax.random.fold_in(run_keys(self._seed).data, step)
        found = jax.device_get(jax.jit(self._batch)(key, np.int32(step)))
        where = f"{self._where} of step {step + 1}" if step else self._where
        require_first_batch(where, found, self._vocab_size, self._longest)

    def require_finite(self, step: int, losses: Any) -> None:
        """Raises what `require` does for the first step whose loss is not finite; `step` is that of the first loss."""
        finite = np.isfinite(np.asarray(losses))
        if not finite.all():
            self.require(step + int(np.argmin(finite)))

    def require_pure(self) -> None:
        """Raises a UserError if the function has other constants when it is traced again, such as draws of NumPy."""

        def traced() -> tuple[str, list[Any]]:
            jaxpr = jax.make_jaxpr(lambda key, step: self._batch(key, step))(random_key(0), np.int32(0))
            return re.sub(r"0x[0-9a-f]+", "", str(jaxpr)), jaxpr.consts

        text, constants = traced()
        for again, others in (traced() for _ in range(3)):  # a draw of few numbers may repeat itself
            if text == again and all(map(np.array_equal, constants, others)):
                continue
            raise UserError(
                f"{self._where}: gives other numbers when it is called again with the same key and step; it is "
                "compiled once, so draw by jax.random from the key"
            )


class Read(dict[str, Any]):
    """A batch that adds the names of the arrays that are read to `names`."""

    def __init__(self, batch: Mapping[str, Any], names: set[str]) -> None:
        super().__init__(batch)
        self._names = names

    def __getitem__(self, name: str) -> Any:
        self._names.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        if name in self:
            self._names.add(name)
        return super().get(name, default)


def of_users(experiment: Any) -> Checked | None:
    """Returns the checked batches of a user's task, or None for those of fxf and for batches that are not traced."""
    task, of_logits = experiment.task, experiment.model.loss.of_logits
    if not is_of_users(task) or task.batch is None:
        return None
    where = f"task '{experiment.config['task']['name']}': batch"
    return Checked(where, task.batch, task.vocab_size if of_logits else None, task.longest, experiment.seed)


def require_learnable(experiment: Any) -> None:
    """Raises a UserError if a model cannot learn from the first batch of a user's task; those of fxf are known."""
    task = experiment.task
    if not is_of_users(task):
        return
    if (checked := of_users(experiment)) is not None:
        checked.require_pure()
        checked.require(0)
        return
    where, first = f"task '{experiment.config['task']['name']}': batch", next(task.batches())
    _require_arrays(where, first)
    of_logits = experiment.model.loss.of_logits
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
        texts = texts[:3] if texts[3:] in ((True,), [True]) else texts  # cut off
        if len(texts) != 3 or not all(isinstance(text, str | None) for text in texts) or texts[2] is None:
            raise UserError(f"{where}: samples: expected tuples of (prompt, expected, answer), got {row!r}")
    if named and not plain.keys() & set(named):
        raise UserError(f"{where}: missing {' or '.join(named)}, which the task's metrics name; got {', '.join(plain)}")
    if best and best.removeprefix("-") not in plain:
        raise UserError(f"{where}: missing {best.removeprefix('-')}, checkpoint.best; got {', '.join(plain)}")
    return plain


def is_of_users(part: Any) -> bool:
    """Returns whether a task, or the function that makes a model, is not one of fxf's own."""
    return getattr(part, "__module__", type(part).__module__).split(".")[0] != "fxf"
