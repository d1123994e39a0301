"""What a user's own batches have to be, checked where a wrong value would be silent."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from fxf.errors import UserError
from fxf.training.state import run_keys

# Names of arrays that hold tokens, and of the masks that say which of them are read.
MASKS = {"inputs": "input_mask", "source": "source_mask", "targets": "weights"}


def require_first_batch(where: str, batch: Mapping[str, Any], vocab_size: int | None, longest: int | None) -> None:
    """Raises a UserError if the values of a batch are not valid for a model. Inside a program they would be clamped.

    Args:
      vocab_size: the tokens are 0 … vocab_size - 1; None if the model reads no tokens.
      longest: the maximum number of tokens in a row; None for no maximum.
    """
    batch = {name: np.asarray(x) for name, x in batch.items()}
    if batch["targets"].shape != batch["weights"].shape:
        sizes = [list(batch[name].shape) for name in ("targets", "weights")]
        raise UserError(f"{where}: targets {sizes[0]} and weights {sizes[1]} differ in shape")
    if not np.isfinite(batch["weights"]).all() or not batch["weights"].sum() > 0:
        total = batch["weights"].sum()
        raise UserError(f"{where}: weights: expected finite numbers with a sum above 0, got the sum {total:g}")
    for name, mask in MASKS.items():
        if name not in batch or vocab_size is None:
            continue
        tokens, read = batch[name], np.asarray(batch.get(mask, True)) != 0
        if longest is not None and tokens.ndim > 1 and tokens.shape[1] > longest:
            raise UserError(f"{where}: {name}: expected at most {longest} tokens in a row, got {tokens.shape[1]}")
        wrong = tokens[((tokens < 0) | (tokens >= vocab_size)) & np.broadcast_to(read, tokens.shape)]
        if len(wrong):
            raise UserError(f"{where}: {name}: expected tokens 0 … {vocab_size - 1}, got {wrong[0]}")


def first_batch(batch: Any, seed: int) -> Any:
    """Returns the batch of step 0 that a function of (key, step) makes, on the host."""
    key = jax.random.fold_in(run_keys(seed).data, 0)
    return jax.device_get(jax.jit(batch)(key, np.int32(0)))


def require_learnable(experiment: Any) -> None:
    """Raises a UserError if a model cannot learn from the first batch of a user's task; those of fxf are known."""
    task = experiment.task
    if type(task).__module__.split(".")[0] == "fxf":
        return
    found = next(task.batches()) if task.has("batches") else first_batch(task.batch, experiment.seed)
    vocab_size = task.vocab_size if experiment.model.loss.of_logits else None
    require_first_batch(f"task '{experiment.config['task']['name']}': batch", found, vocab_size, task.longest)
