"""The weighted loss (seed 004, "Batch evaluation with loss weights"), computed in groups of rows to save memory."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fxf.base.devices import TENSOR, devices_along, target_devices, target_mesh
from fxf.base.errors import UserError
from fxf.base.on_gpu import on_gpu
from fxf.layers.linear import as_float32
from fxf.layers.loss_kernel import loss_by_kernel

# Logits of a group. On a CPU 8 MiB fit its cache. A large readout has half as many logits as weights instead, because
# each group passes over the weights and their gradient. Accelerators prefer few large groups: 2 GiB in float32.
LOGITS_AT_ONCE = 2**21
LOGITS_AT_ONCE_ON_ACCELERATORS = 2**29


def cross_entropy(
    readout: Callable[[jax.Array], jax.Array],
    features_BTD: jax.Array,
    targets_BT: jax.Array,
    weights_BT: jax.Array,
    label_smoothing: jax.Array | float | None = None,
    *,
    vocab_size: int | None = None,
    at_once: int | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Returns (loss_sum, weight_sum): -Σ ω y and Σ ω over the batch, where y is the log-probability of a target.

    The loss is their quotient, after the sums over microbatches, devices and processes. It is not the mean of the rows'
    losses: a row with more weight has more influence.

    The logits [N, V] of all N = B · T tokens are never in memory at once. They are computed group by group, each
    together with its gradient.

    Args:
      readout: maps vectors [N, D] to logits [N, V], each row alone. The gradient includes the arrays it closes over.
      targets_BT: a target below 0 or beyond the vocabulary makes the loss NaN, unless its weight is 0.
      label_smoothing: share of each target's probability that is distributed evenly over the vocabulary
        (Szegedy et al. 2016); None for 0.
      vocab_size: number of tokens; logits beyond it are padding. None: all logits are those of tokens.
      at_once: maximum number of logits in a group, which has at least one row; None chooses by the devices.
    """
    if targets_BT.shape != features_BTD.shape[:-1] or not jnp.issubdtype(targets_BT.dtype, jnp.integer):
        got, outputs = f"{targets_BT.dtype} {[*targets_BT.shape]}", [*features_BTD.shape[:-1]]
        raise UserError(f"batch: targets: expected an int for each output of the model, {outputs}, got {got}")
    # Narrow types hold neither the size of a vocabulary, such as uint8 of bytes, nor a sum of weights.
    targets_BT, weights_BT = targets_BT.astype(jnp.int32), as_float32(weights_BT)
    rows_ND = features_BTD.reshape(-1, features_BTD.shape[-1])
    program = jax.make_jaxpr(readout)(rows_ND).jaxpr
    n_rows, n_columns = program.outvars[0].aval.shape
    on_cpu = target_devices()[0].platform == "cpu"
    most = max(LOGITS_AT_ONCE, rows_ND.shape[1] * n_columns // 2) if on_cpu else LOGITS_AT_ONCE_ON_ACCELERATORS
    n_groups = -(-n_rows * n_columns // (at_once or most))
    if not on_cpu:  # XLA would pad products to multiples of 8 rows, by copying the logits
        n_groups = next((n for n in range(n_groups, 2 * n_groups) if n_rows % (8 * n) == 0), n_groups)
    group = -(-n_rows // n_groups)
    n_groups = -(-n_rows // group)  # no group is all padding

    def grouped(x: jax.Array) -> jax.Array:
        """Cuts [N, ...] into [groups, rows, ...]; zeros, also as weights, pad the last group."""
        padded = jnp.pad(x, [(0, n_groups * group - n_rows)] + [(0, 0)] * (x.ndim - 1))
        return padded.reshape(n_groups, group, *x.shape[1:])

    vocab_size = vocab_size or n_columns
    # A weighted target outside the vocabulary has no logit: then the loss is NaN, and training stops.
    is_token_BT = (targets_BT >= 0) & (targets_BT < vocab_size)
    counted_BT = jnp.where(is_token_BT | (weights_BT == 0), weights_BT, jnp.nan)
    groups = (grouped(rows_ND), grouped(targets_BT.reshape(-1)), grouped(counted_BT.reshape(-1)))
    pure_readout, closed_over = jax.closure_convert(readout, groups[0][0])
    kernel = functools.partial(loss_by_kernel, target_mesh()) if _has_kernel(program) else None
    one_group = functools.partial(_group_loss, pure_readout, vocab_size, kernel)
    return _sum_over_groups(one_group, label_smoothing, closed_over, *groups), jnp.sum(weights_BT)


def _has_kernel(readout: Any) -> bool:
    """Returns whether a GPU kernel may read the logits in bfloat16: the readout's last operation casts from it."""
    if not on_gpu() or not readout.eqns or devices_along(TENSOR) > 1:
        return False
    last = readout.eqns[-1]
    return last.outvars == readout.outvars and [x.aval.dtype for x in last.invars] == [jnp.bfloat16]


class Loss(NamedTuple):
    """A loss, and the kind of outputs that it trains.

    Attributes:
      sums: `sums(readout, features, targets, weights, label_smoothing) -> (loss_sum, weight_sum)`, sums over rows. A
        loss that compares rows has one sum for each microbatch, and its model has no `width`. A batch without targets
        passes its weights in their place.
      of_logits: whether the outputs are logits. Then scores are the cross-entropy in nats, whatever the loss, and
        `sums` also has the options `vocab_size` and `at_once` of `cross_entropy`.
    """

    sums: Callable[..., tuple[jax.Array, jax.Array]]
    of_logits: bool


CROSS_ENTROPY = Loss(cross_entropy, of_logits=True)


def _group_loss(
    readout: Callable[..., jax.Array],
    vocab_size: int,
    kernel: Callable[..., jax.Array] | None,
    label_smoothing: jax.Array | float | None,
    closed_over: Any,
    features_ND: jax.Array,
    targets_N: jax.Array,
    weights_N: jax.Array,
) -> jax.Array:
    logits_NV = readout(features_ND, *closed_over)
    if kernel:
        return kernel(vocab_size, label_smoothing, logits_NV.astype(jnp.bfloat16), targets_N, weights_N)
    vocabulary_1V = jnp.arange(logits_NV.shape[1])[None]
    # Read before padding becomes -inf, because -inf times a weight of 0 is NaN.
    target_logits_N = jnp.where(vocabulary_1V == targets_N[:, None], logits_NV, 0).sum(-1)
    padded = logits_NV.shape[1] > vocab_size
    if padded:
        logits_NV = jnp.where(vocabulary_1V < vocab_size, logits_NV, -jnp.inf)
    kept = 1 if label_smoothing is None else 1 - label_smoothing
    losses_N = jax.nn.logsumexp(logits_NV, axis=-1) - kept * target_logits_N
    if label_smoothing is not None:
        of_tokens_NV = jnp.where(vocabulary_1V < vocab_size, logits_NV, 0) if padded else logits_NV
        losses_N = losses_N - label_smoothing * of_tokens_NV.sum(-1) / vocab_size
    return jnp.sum(weights_N * losses_N)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _sum_over_groups(one_group: Callable[..., jax.Array], label_smoothing: Any, closed_over: Any, *rows: Any) -> Any:
    def add(total: jax.Array, group: tuple) -> tuple[jax.Array, None]:
        return total + one_group(label_smoothing, closed_over, *group), None

    return jax.lax.scan(add, jnp.zeros(()), rows)[0]


def _forward(one_group: Callable[..., jax.Array], label_smoothing: Any, closed_over: Any, *rows: Any) -> Any:
    def add(carry: tuple, group: tuple) -> tuple[tuple, jax.Array]:
        total, gradient = carry
        with_gradient = jax.value_and_grad(one_group, (1, 2))
        loss, (closed_over_gradient, feature_gradient) = with_gradient(label_smoothing, closed_over, *group)
        return (total + loss, jax.tree.map(jnp.add, gradient, closed_over_gradient)), feature_gradient

    start = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, closed_over))
    (total, closed_over_gradient), feature_gradient = jax.lax.scan(add, start, rows)
    return total, (closed_over_gradient, feature_gradient)


def _backward(_: Any, gradients: tuple, cotangent: jax.Array) -> tuple:
    closed_over_gradient, feature_gradient = jax.tree.map(lambda g: (g * cotangent).astype(g.dtype), gradients)
    return None, closed_over_gradient, feature_gradient, None, None  # smoothing, targets and weights have no gradient


_sum_over_groups.defvjp(_forward, _backward)


def mean(total: jax.Array, weight: jax.Array) -> jax.Array:
    """Returns total / weight, or 0 if the weight is 0, so a batch without weight changes nothing."""
    return jnp.where(weight > 0, total / or_one(weight), 0)


def or_one(weight: jax.Array) -> jax.Array:
    """Returns the weight of a batch, or 1 if it is 0 and the objective has only terms."""
    return jnp.where(weight > 0, weight, 1)
