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
from fxf.layers.loss import SQUARED_ERROR
from fxf.models.model import Batch, Cache, Model
from fxf.weights import COPIES, LAYERS, Params, Spec, Weight, stack


@dataclasses.dataclass(frozen=True)
class BilayerConfig:
    """The `model` section for `bilayer`; the defaults are those of seed 002, "transfomer bilayer code"."""

    name: Literal["bilayer"] = key("bilayer", "the model to build")
    n_layers: int = key(3, "bilayers, each of attention and a feed-forward layer", minimum=1)
    max_len: int = key(5, "positions, each with weights of its own; decoding slides over longer texts", minimum=2)
    expand: int = key(4, "width inside the feed-forward layer, in widths of the task's vectors", minimum=1)
    copies: int = key(1, "models side by side, each for its share of a batch's rows", minimum=1)


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
    same kind; T is at most `config.max_len`. Row b is read by copy b modulo `config.copies`. What leaves the last
    bilayer is read as it is: the largest component is the nearest one-hot vector.

    Decoding sees token 0, which stood in front of every text in training, and the last `config.max_len` - 1 tokens: the
    cache is that window. (The seed has no such token, and a window of real letters alone.)
    """

    def features(params: Params, batch: Batch, *, rng: jax.Array | None = None) -> jax.Array:
        del rng  # no dropout
        return run_bilayers(config, params, as_vectors(batch["inputs"], width))

    def prefill(params: Params, batch: Batch, length: int) -> Cache:
        del params, length
        tokens_BT, lengths_B = batch["inputs"], batch["lengths"]
        positions_1T = jnp.arange(config.max_len)[None]
        slid_B1 = jnp.maximum(lengths_B - config.max_len, 0)[:, None]
        sources_BT = jnp.where(positions_1T == 0, 0, positions_1T + slid_B1)
        padded_BT = jnp.pad(tokens_BT, ((0, 0), (0, config.max_len)))
        return Cache(jnp.take_along_axis(padded_BT, sources_BT, axis=1), lengths_B)

    def step(params: Params, cache: Cache, tokens_B: jax.Array) -> tuple[jax.Array, Cache]:
        window_BT, last = cache.blocks, config.max_len - 1
        slid_BT = window_BT.at[:, 1:last].set(window_BT[:, 2:])
        window_BT = jnp.where(cache.lengths[:, None] > last, slid_BT, window_BT)
        rows_B, written_B = jnp.arange(tokens_B.shape[0]), jnp.minimum(cache.lengths, last)
        window_BT = window_BT.at[rows_B, written_B].set(tokens_B)
        outputs_BTD = features(params, {"inputs": window_BT})
        return outputs_BTD[rows_B, written_B], Cache(window_BT, cache.lengths + 1)

    return Model(
        bilayer_spec(config, width),
        features,
        readout=lambda params, x: x,
        prefill=prefill,
        step=step,
        loss=SQUARED_ERROR,
        copies=config.copies,
        slides=True,
    )


def as_vectors(inputs: jax.Array, width: int) -> jax.Array:
    """Returns vectors [..., D] as they are, and tokens [...] as one-hot vectors."""
    return jax.nn.one_hot(inputs, width) if jnp.issubdtype(inputs.dtype, jnp.integer) else inputs


def run_bilayers(config: BilayerConfig, params: Params, x_BTD: jax.Array) -> jax.Array:
    """Returns what leaves the last bilayer, [B, T, D]."""
    if x_BTD.shape[0] % config.copies:
        raise UserError(f"model.copies: {config.copies} does not divide {x_BTD.shape[0]} rows")

    def one_copy(layers: Params, x_BTD: jax.Array) -> jax.Array:
        for i in range(config.n_layers):
            with jax.named_scope(f"block_{i}"):
                x_BTD = one_bilayer(jax.tree.map(lambda w, i=i: w[i], layers), x_BTD)
        return x_BTD

    x_BCTD = x_BTD.reshape(-1, config.copies, *x_BTD.shape[1:])
    return jax.vmap(one_copy, (0, 1), 1)(params, x_BCTD).reshape(x_BTD.shape)


def one_bilayer(params: Params, x_BTD: jax.Array) -> jax.Array:
    """Adds causal attention and then a feed-forward layer: [B, T, D] to the same.

    Attention weights are exponentials of unscaled dot products, normalized over the keys that a query may see.
    """
    length = x_BTD.shape[1]

    def at_each_position(x_BTD: jax.Array, name: str) -> jax.Array:
        return jnp.einsum("BTD,DTE->BTE", x_BTD, params[name][:, :length])

    q_BTD, k_BTD, v_BTD = (at_each_position(x_BTD, name) for name in ("query", "key", "value"))
    causal_1TT = jnp.tril(jnp.ones((1, length, length), bool))
    scores_BTT = jnp.where(causal_1TT, jnp.einsum("BTD,BSD->BTS", q_BTD, k_BTD), -jnp.inf)
    alpha_BTT = checkpoint_name(jax.nn.softmax(scores_BTT), "weights")
    x_BTD = x_BTD + jnp.einsum("BTS,BSD->BTD", alpha_BTT, v_BTD)
    hidden_BTF = jnp.tanh(at_each_position(x_BTD, "expand") - params["bias"][None, :length])
    return checkpoint_name(x_BTD + at_each_position(hidden_BTF, "contract"), "residual")
