"""What a user's own batches have to be, checked where a wrong value would be silent."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from fxf.base.errors import UserError
from fxf.training.state import run_keys

# Names of arrays that hold tokens, and of the masks that say which of them are read.
MASKS = {"inputs": "input_mask", "source": "source_mask", "targets": "weights"}


def require_first_batch(where: str, batch: Mapping[str, Any], vocab_size: int | None) -> None:
    """Raises a UserError if the values of a batch are not valid for a model. Inside a program they would be clamped.

    Args:
      vocab_size: the tokens are 0 … vocab_size - 1; None if the model reads no tokens.
    """
    if not (total := np.sum(batch["weights"])) > 0 or not np.isfinite(total):
        raise UserError(f"{where}: weights: expected finite numbers with a sum above 0, got the sum {total:g}")
    for name in sorted(MASKS.keys() & batch.keys()):
        if vocab_size is None:
            break
        tokens, read = np.broadcast_arrays(batch[name], np.asarray(batch.get(MASKS[name], True)) != 0)
        wrong = tokens[((tokens < 0) | (tokens >= vocab_size)) & read]
        if len(wrong):
            raise UserError(f"{where}: {name}: expected tokens 0 … {vocab_size - 1}, got {wrong[0]}")


def first_batch(batch: Callable[..., Any], seed: int) -> Any:
    """Returns the batch of step 0 that a function of (key, step) makes, on the host."""
    return jax.device_get(jax.jit(batch)(jax.random.fold_in(run_keys(seed).data, 0), np.int32(0)))


def require_learnable(experiment: Any) -> None:
    """Raises a UserError if a model cannot learn from the first batch of a user's task; those of fxf are known."""
    task = experiment.task
    if type(task).__module__.split(".")[0] != "fxf":
        found = next(task.batches()) if task.has("batches") else first_batch(task.batch, experiment.seed)
        vocab_size = task.vocab_size if experiment.model.loss.of_logits else None
        require_first_batch(f"task '{experiment.config['task']['name']}': batch", found, vocab_size)
