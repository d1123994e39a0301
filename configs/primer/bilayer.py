"""Transformer bilayers with separate weights for each position (seed 002, "transfomer bilayer code").

The seed calls a layer norm before each half of a bilayer and ignores its result, so there is none here. Each position
has its own maps, so the model needs no positional encoding.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fxf.base.config import key
from fxf.base.errors import UserError
from fxf.base.weights import COPIES, LAYERS, Params, Spec, Weight, stack
from fxf.layers.cache import Cache
from fxf.layers.loss import Loss
from fxf.layers.named import named
from fxf.models import RegisteredModel
from fxf.models.model import Batch, Model

NO_POSITIONS = "positions: a bilayer has its own weights for each position; give none (task.document_mask gives some)"


@dataclasses.dataclass(frozen=True)
class BilayerConfig:
    """The `model` section for `bilayer`; the defaults are those of seed 002, "transfomer bilayer code"."""

    name: str = key("bilayer", "the model to build")
    n_layers: int = key(3, "number of bilayers, each of attention and a feed-forward layer", minimum=1)
    max_len: int = key(5, "positions, each with its own weights; decoding slides a window over texts", minimum=2)
    expand: int = key(4, "width inside the feed-forward layer, in widths of the task's vectors", minimum=1)
    copies: int = key(1, "independent models, each for its share of the rows; only a single one generates", minimum=1)


def bilayer_spec(config: BilayerConfig, width: int) -> Spec:
    """Returns the weights, [copies, n_layers, ...].

    The seed's standard deviations are 1/D² for attention and 1/(D² · expand) for the feed-forward layer.
    """
    n_positions, d_ff = config.max_len, width * config.expand
    square = Weight((width, n_positions, width), ("embed", "position", "head_dim"), _normal(1 / width**2))
    attention = {name: square for name in ("query", "key", "value")}
    init = _normal(1 / (width**2 * config.expand))
    feed_forward = {
        "expand": Weight((width, n_positions, d_ff), ("embed", "position", "mlp"), init),
        "bias": Weight((n_positions, d_ff), ("position", "mlp"), jax.nn.initializers.zeros),
        "contract": Weight((d_ff, n_positions, width), ("mlp", "position", "embed"), init),
    }
    return stack(stack({**attention, **feed_forward}, config.n_layers, LAYERS), config.copies, COPIES)


def _normal(deviation: float) -> Any:
    return jax.nn.initializers.normal(deviation)


def bilayer(config: BilayerConfig, width: int) -> Model:
    """Builds the model. The width D of its vectors is the size of the task's vocabulary.

    A batch has `inputs`, which are vectors [B, T, D] or tokens [B, T], and targets of the same kind. Tokens stand for
    one-hot vectors, and T is at most `config.max_len`. Copy `row[b]` modulo `config.copies` reads row b; without
    `row` [B] in the batch, row b has the index b. The outputs of the last bilayer are the logits: the largest
    component is the nearest one-hot vector.

    Only a single copy has prefill and step. The cache is a window of the last `config.max_len` tokens, as in the seed.
    If a row starts with token 0 (<bos>), which was first in training, this token stays first in the window.
    """

    def features(params: Params, batch: Batch, *, rng: jax.Array | None = None) -> jax.Array:
        del rng  # no dropout
        if "positions" in batch:
            raise UserError(NO_POSITIONS)
        return run_bilayers(config, params, as_vectors(batch["inputs"], width), batch.get("row"))

    def prefill(params: Params, batch: Batch, length: int) -> Cache:
        del params, length
        if "positions" in batch:
            raise UserError(NO_POSITIONS)
        lengths_B = batch["lengths"]
        padded = jnp.pad(batch["inputs"], ((0, 0), (0, config.max_len)))
        keeps_B = padded[:, 0] == 0
        positions_1C = jnp.arange(config.max_len)[None]
        slid_B1 = jnp.maximum(lengths_B - config.max_len, 0)[:, None]
        indices_BC = jnp.where(keeps_B[:, None] & (positions_1C == 0), 0, positions_1C + slid_B1)
        return Cache((jnp.take_along_axis(padded, indices_BC, axis=1), keeps_B), lengths_B)

    def step(params: Params, cache: Cache, tokens_R: jax.Array) -> tuple[jax.Array, Cache]:
        (window_RC, keeps_R), last = cache.layers, config.max_len - 1
        keeps_R = jnp.where(cache.lengths == 0, tokens_R == 0, keeps_R)
        slid_RC = jnp.roll(window_RC, -1, axis=1)
        slid_RC = slid_RC.at[:, 0].set(jnp.where(keeps_R, window_RC[:, 0], slid_RC[:, 0]))
        window_RC = jnp.where(cache.lengths[:, None] > last, slid_RC, window_RC)
        rows_R, newest_R = jnp.arange(tokens_R.shape[0]), jnp.minimum(cache.lengths, last)
        window_RC = window_RC.at[rows_R, newest_R].set(tokens_R)
        outputs_RCD = features(params, {"inputs": window_RC})
        return outputs_RCD[rows_R, newest_R], Cache((window_RC, keeps_R), cache.lengths + 1)

    return Model(
        bilayer_spec(config, width),
        features,
        readout=lambda params, x: x,
        prefill=prefill if config.copies == 1 else None,
        step=step if config.copies == 1 else None,
        loss=Loss(squared_error, of_logits=False),
    )


def squared_error(
    readout: Callable[[jax.Array], jax.Array],
    features_BTD: jax.Array,
    targets: jax.Array,
    weights_BT: jax.Array,
    label_smoothing: None = None,
) -> tuple[jax.Array, jax.Array]:
    """Returns (loss_sum, weight_sum): Σ ω |y - target|² and Σ ω over the batch, where y is the readout (seed 002).

    Where ω is 0 the target may be anything, such as NaN for a value that is missing.

    Args:
      readout: maps vectors [B, T, D] to [B, T, O].
      targets: vectors [B, T, O], or tokens [B, T], which stand for one-hot vectors.
      label_smoothing: None; only cross-entropy has label smoothing.
    """
    assert label_smoothing is None
    outputs_BTO = readout(features_BTD)
    if jnp.issubdtype(targets.dtype, jnp.integer):
        targets = jax.nn.one_hot(targets, outputs_BTO.shape[-1])
    errors_BTO = jnp.where(weights_BT[..., None] != 0, outputs_BTO - targets, 0)
    return jnp.sum(weights_BT * jnp.square(errors_BTO).sum(-1)), jnp.sum(weights_BT)


def as_vectors(inputs: jax.Array, width: int) -> jax.Array:
    """Returns vectors [..., D] unchanged, and tokens [...] as one-hot vectors [..., D]."""
    return jax.nn.one_hot(inputs, width) if jnp.issubdtype(inputs.dtype, jnp.integer) else inputs


def run_bilayers(config: BilayerConfig, params: Params, x_BTD: jax.Array, row_B: jax.Array | None = None) -> jax.Array:
    """Returns the outputs of the last bilayer, [B, T, D]; `row_B` has the rows' indices, by default 0, 1, …

    Raises:
      UserError: T is more than `config.max_len`.
    """
    if x_BTD.shape[1] > config.max_len:
        raise UserError(f"inputs: expected at most model.max_len {config.max_len} in a row, got {x_BTD.shape[1]}")

    def one_row(layers: Params, x_TD: jax.Array) -> jax.Array:
        for i in range(config.n_layers):
            with jax.named_scope(f"block_{i}"):
                x_TD = one_bilayer(jax.tree.map(lambda w, i=i: w[i], layers), x_TD)
        return x_TD

    if config.copies == 1:
        return jax.vmap(one_row, (None, 0))(jax.tree.map(lambda w: w[0], params), x_BTD)
    copy_B = (jnp.arange(x_BTD.shape[0]) if row_B is None else row_B) % config.copies
    return jax.vmap(one_row)(jax.tree.map(lambda w: w[copy_B], params), x_BTD)


def one_bilayer(params: Params, x_TD: jax.Array) -> jax.Array:
    """Returns x [T, D] with causal attention and then a feed-forward layer added.

    The attention weights are the softmax of unscaled dot products.
    """
    length = x_TD.shape[0]

    def at_each_position(x_TI: jax.Array, name: str) -> jax.Array:
        return jnp.einsum("TI,ITO->TO", x_TI, params[name][:, :length])

    q_TD, k_CD, v_CD = (at_each_position(x_TD, name) for name in ("query", "key", "value"))
    scores_TC = jnp.where(jnp.tril(jnp.ones((length, length), bool)), jnp.einsum("TD,CD->TC", q_TD, k_CD), -jnp.inf)
    weights_1TC = named("weights", jax.nn.softmax(scores_TC)[None])  # one head
    x_TD = x_TD + jnp.einsum("TC,CD->TD", weights_1TC[0], v_CD)
    hidden_TF = jnp.tanh(at_each_position(x_TD, "expand") - params["bias"][:length])
    return named("residual", x_TD + at_each_position(hidden_TF, "contract"))


BILAYER = RegisteredModel(BilayerConfig, bilayer, in_place_of="transformer_lm")
