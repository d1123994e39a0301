"""Transformer bilayers with weights of their own for each position (seed 002, "transfomer bilayer code").

The seed calls a layer norm before each half of a bilayer and drops its result, so there is none here. No positional
encoding is needed: each position has its own maps.
"""

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from fxf.config import key
from fxf.errors import UserError
from fxf.layers.cache import Cache
from fxf.layers.loss import SQUARED_ERROR
from fxf.models.model import Batch, Model
from fxf.weights import COPIES, LAYERS, Params, Spec, Weight, stack

NO_POSITIONS = "positions: a bilayer has weights of its own for each place in a row; give none"


@dataclasses.dataclass(frozen=True)
class BilayerConfig:
    """The `model` section for `bilayer`; the defaults are those of seed 002, "transfomer bilayer code"."""

    name: Literal["bilayer"] = key("bilayer", "the model to build")
    n_layers: int = key(3, "bilayers, each of attention and a feed-forward layer", minimum=1)
    max_len: int = key(5, "positions, each with weights of its own; decoding slides over longer texts", minimum=2)
    expand: int = key(4, "width inside the feed-forward layer, in widths of the task's vectors", minimum=1)
    copies: int = key(
        1, "models side by side, each for its share of a batch's rows; more than 1 generate nothing", minimum=1
    )


def bilayer_spec(config: BilayerConfig, width: int) -> Spec:
    """The weights of every copy and layer, with the seed's deviations: 1/D² for attention, 1/(D² · expand) after it."""
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
    """Builds the model. Its vectors are as wide as the task's vocabulary.

    A batch holds `inputs`: vectors [B, T, D], or tokens [B, T] that are read as one-hot vectors, with targets of the
    same kind; T is at most `config.max_len`. Of several copies, row b is read by number `row[b]` modulo
    `config.copies`; a batch without `row` [B] counts its rows from 0. What leaves the last bilayer is read as it is:
    the largest component is the nearest one-hot vector.

    One copy decodes; several have no prefill and step. The cache is a window of the last `config.max_len` tokens, as in
    the seed. Where a row starts with token 0 (<bos>), which stood first in training, it keeps its place in the window.
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
        padded_BT = jnp.pad(batch["inputs"], ((0, 0), (0, config.max_len)))
        keeps_B = padded_BT[:, 0] == 0
        positions_1T = jnp.arange(config.max_len)[None]
        slid_B1 = jnp.maximum(lengths_B - config.max_len, 0)[:, None]
        sources_BT = jnp.where(keeps_B[:, None] & (positions_1T == 0), 0, positions_1T + slid_B1)
        return Cache((jnp.take_along_axis(padded_BT, sources_BT, axis=1), keeps_B), lengths_B)

    def step(params: Params, cache: Cache, tokens_B: jax.Array) -> tuple[jax.Array, Cache]:
        (window_BT, keeps_B), last = cache.blocks, config.max_len - 1
        keeps_B = jnp.where(cache.lengths == 0, tokens_B == 0, keeps_B)
        slid_BT = jnp.roll(window_BT, -1, axis=1)
        slid_BT = slid_BT.at[:, 0].set(jnp.where(keeps_B, window_BT[:, 0], slid_BT[:, 0]))
        window_BT = jnp.where(cache.lengths[:, None] > last, slid_BT, window_BT)
        rows_B, written_B = jnp.arange(tokens_B.shape[0]), jnp.minimum(cache.lengths, last)
        window_BT = window_BT.at[rows_B, written_B].set(tokens_B)
        outputs_BTD = features(params, {"inputs": window_BT})
        return outputs_BTD[rows_B, written_B], Cache((window_BT, keeps_B), cache.lengths + 1)

    return Model(
        bilayer_spec(config, width),
        features,
        readout=lambda params, x: x,
        prefill=prefill if config.copies == 1 else None,
        step=step if config.copies == 1 else None,
        loss=SQUARED_ERROR,
    )


def as_vectors(inputs: jax.Array, width: int) -> jax.Array:
    """Returns vectors [..., D] as they are, and tokens [...] as one-hot vectors."""
    return jax.nn.one_hot(inputs, width) if jnp.issubdtype(inputs.dtype, jnp.integer) else inputs


def run_bilayers(config: BilayerConfig, params: Params, x_BTD: jax.Array, row_B: jax.Array | None = None) -> jax.Array:
    """Returns what leaves the last bilayer, [B, T, D]; `row_B` are the rows' numbers, from 0 if not given."""

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
    """Adds causal attention and then a feed-forward layer: [T, D] to the same.

    Attention weights are exponentials of unscaled dot products, normalized over the keys that a query may see.
    """
    length = x_TD.shape[0]

    def at_each_position(x_TD: jax.Array, name: str) -> jax.Array:
        return jnp.einsum("TD,DTE->TE", x_TD, params[name][:, :length])

    q_TD, k_TD, v_TD = (at_each_position(x_TD, name) for name in ("query", "key", "value"))
    scores_TS = jnp.where(jnp.tril(jnp.ones((length, length), bool)), jnp.einsum("TD,SD->TS", q_TD, k_TD), -jnp.inf)
    alpha_1TS = checkpoint_name(jax.nn.softmax(scores_TS)[None], "weights")  # one head
    x_TD = x_TD + jnp.einsum("TS,SD->TD", alpha_1TS[0], v_TD)
    hidden_TF = jnp.tanh(at_each_position(x_TD, "expand") - params["bias"][:length])
    return checkpoint_name(x_TD + at_each_position(hidden_TF, "contract"), "residual")
