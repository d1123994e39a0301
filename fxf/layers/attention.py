"""Multi-head attention (seed 004, "Multi-Head Causal Attention"; seed 000, "SelfAttention Unit").

It comes in two halves, so that what is attended to can be this sequence, a cache of it, or another sequence:
`keys_values` of the vectors attended to, and `attend` from the vectors that ask.
"""

import math

import flax.struct
import jax
import jax.numpy as jnp

from fxf.config import TransformerConfig
from fxf.layers.dropout import dropout
from fxf.layers.linear import linear
from fxf.weights import Params, Spec, Weight, fan_in


@flax.struct.dataclass
class KeysValues:
    """The keys and values of one attention layer for C positions, each [B, H, C, K]."""

    keys: jax.Array
    values: jax.Array


def attention_spec(config: TransformerConfig) -> Spec:
    d_model, n_heads = config.d_model, config.n_heads
    shape, axes = (d_model, n_heads, d_model // n_heads), ("embed", "heads", "head_dim")
    spec = {name: Weight(shape, axes, fan_in()) for name in ("query", "key", "value")}
    spec["output"] = Weight((*shape[1:], d_model), (*axes[1:], "embed"), fan_in(2))
    zeros = jax.nn.initializers.zeros
    if config.attention_bias == "all":
        spec |= {f"{name}_bias": Weight(shape[1:], axes[1:], zeros) for name in ("query", "key", "value")}
    if config.attention_bias != "none":
        spec["output_bias"] = Weight((d_model,), ("embed",), zeros)
    return spec


def keys_values(params: Params, z_BCD: jax.Array) -> KeysValues:
    """Returns the keys and values of the vectors to attend to."""
    return KeysValues(_project(params, "key", z_BCD), _project(params, "value", z_BCD))


def attend(
    params: Params,
    x_BTD: jax.Array,
    memory: KeysValues,
    allowed_BTC: jax.Array,
    *,
    rng: jax.Array | None = None,
    dropout_rate: float = 0.0,
) -> jax.Array:
    """Returns for each vector of x the mean of the values in memory, weighted by how its query meets their keys.

    Args:
      x_BTD: the vectors to attend from. Where memory has fewer rows, each of its rows serves B / rows rows of x in a
        row, as the hypotheses of one beam.
      allowed_BTC: which positions of memory each vector may attend to, at least one; axes of size 1 repeat.
      rng: key for dropout of the attention weights; None drops nothing.

    Returns:
      [B, T, D].
    """
    grouped_BTD = x_BTD.reshape(memory.keys.shape[0], -1, x_BTD.shape[-1])
    q_BHTK = _project(params, "query", grouped_BTD)
    scores_BHTC = jnp.einsum("BHTK,BHCK->BHTC", q_BHTK, memory.keys) / math.sqrt(q_BHTK.shape[-1])
    weights_BHTC = jax.nn.softmax(jnp.where(allowed_BTC[:, None], scores_BHTC, -jnp.inf))
    weights_BHTC = dropout(rng, weights_BHTC, dropout_rate)
    heads_BHTK = jnp.einsum("BHTC,BHCK->BHTK", weights_BHTC, memory.values)
    concatenated_BTD = heads_BHTK.transpose(0, 2, 1, 3).reshape(x_BTD.shape)
    return linear(concatenated_BTD, params["output"].reshape(x_BTD.shape[-1], -1), params.get("output_bias"))


def write(cache: KeysValues, positions_BT: jax.Array, new: KeysValues) -> KeysValues:
    """Puts new keys and values, [B, H, T, K], at each row's positions of the cache."""
    rows_B1 = jnp.arange(cache.keys.shape[0])[:, None]
    return KeysValues(
        keys=cache.keys.at[rows_B1, :, positions_BT].set(new.keys.transpose(0, 2, 1, 3)),
        values=cache.values.at[rows_B1, :, positions_BT].set(new.values.transpose(0, 2, 1, 3)),
    )


def _project(params: Params, name: str, x_BTD: jax.Array) -> jax.Array:
    """Maps [B, T, D] to [B, H, T, K]."""
    w_DHK = params[name]
    bias = params.get(f"{name}_bias")
    rows = linear(x_BTD, w_DHK.reshape(w_DHK.shape[0], -1), None if bias is None else bias.reshape(-1))
    return rows.reshape(*x_BTD.shape[:-1], *w_DHK.shape[1:]).transpose(0, 2, 1, 3)
