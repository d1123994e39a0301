"""The weighted masked loss (seed 004, "Batch evaluation with loss weights")."""

import jax
import jax.numpy as jnp


def cross_entropy(logits_BTV: jax.Array, targets_BT: jax.Array, weights_BT: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns (loss_sum, weight_sum): -Σ ω y over the batch, y the log-probability of each target, and Σ ω.

    The loss is their quotient, taken once after every sum over microbatches, devices and processes. It is not the
    mean over rows of each row's loss: rows with more weight count for more.
    """
    log_probabilities_BTV = jax.nn.log_softmax(logits_BTV)
    y_BT = jnp.take_along_axis(log_probabilities_BTV, targets_BT[..., None], axis=-1)[..., 0]
    return -jnp.sum(weights_BT * y_BT), jnp.sum(weights_BT)


def mean(total: jax.Array, weight: jax.Array) -> jax.Array:
    """Returns total / weight, and zero where the weight is zero: a batch that counts for nothing moves nothing."""
    return jnp.where(weight > 0, total / jnp.where(weight > 0, weight, 1), 0)
