"""Multi-head attention (seed 004, "Multi-Head Causal Attention"); with n_heads=1, its single-head form."""

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
    """The keys and values of one attention layer for the positions seen so far, each [B, H, C, K]."""

    keys: jax.Array
    values: jax.Array


def attention_spec(config: TransformerConfig) -> Spec:
    d_model, n_heads = config.d_model, config.n_heads
    shape, axes = (d_model, n_heads, d_model // n_heads), ("embed", "heads", "head_dim")
    return {
        "query": Weight(shape, axes, fan_in()),
        "key": Weight(shape, axes, fan_in()),
        "value": Weight(shape, axes, fan_in()),
        "output": Weight((*shape[1:], d_model), (*axes[1:], "embed"), fan_in(2)),
        "output_bias": Weight((d_model,), ("embed",), jax.nn.initializers.zeros),
    }


def attention(
    params: Params,
    x_BTD: jax.Array,
    positions_BT: jax.Array,
    *,
    cache: KeysValues | None = None,
    rng: jax.Array | None = None,
    dropout_rate: float = 0.0,
) -> tuple[jax.Array, KeysValues | None]:
    """Causal attention: each position attends to itself and to those before it.

    Args:
      x_BTD: the vectors to attend from, and without a cache also to.
      positions_BT: their positions, counted from 0; [1, T] where all rows have the same.
      cache: keys and values by position. Those of `x_BTD` are written to it at their positions before attending.
      rng: key for dropout of the attention weights; None drops nothing.

    Returns:
      [B, T, D], and the cache with what was written.
    """
    q_BHTK, k_BHCK, v_BHCK = (_project(x_BTD, params[name]) for name in ("query", "key", "value"))
    if cache is not None:
        cache = _write(cache, positions_BT, k_BHCK, v_BHCK)
        k_BHCK, v_BHCK = cache.keys, cache.values
    allowed_BTC = jnp.arange(k_BHCK.shape[2])[None, None] <= positions_BT[..., None]
    scores_BHTC = jnp.einsum("BHTK,BHCK->BHTC", q_BHTK, k_BHCK) / math.sqrt(q_BHTK.shape[-1])
    weights_BHTC = jax.nn.softmax(jnp.where(allowed_BTC[:, None], scores_BHTC, -jnp.inf))
    weights_BHTC = dropout(rng, weights_BHTC, dropout_rate)
    heads_BHTK = jnp.einsum("BHTC,BHCK->BHTK", weights_BHTC, v_BHCK)
    concatenated_BTD = heads_BHTK.transpose(0, 2, 1, 3).reshape(x_BTD.shape)
    output_DD = params["output"].reshape(-1, params["output"].shape[-1])
    return linear(concatenated_BTD, output_DD, params["output_bias"]), cache


def _project(x_BTD: jax.Array, w_DHK: jax.Array) -> jax.Array:
    """Maps [B, T, D] to [B, H, T, K]."""
    rows = linear(x_BTD, w_DHK.reshape(w_DHK.shape[0], -1))
    return rows.reshape(*x_BTD.shape[:-1], *w_DHK.shape[1:]).transpose(0, 2, 1, 3)


def _write(cache: KeysValues, positions_BT: jax.Array, k_BHTK: jax.Array, v_BHTK: jax.Array) -> KeysValues:
    """Puts the keys and values of each row at its positions."""
    rows_B1 = jnp.arange(k_BHTK.shape[0])[:, None]
    return KeysValues(
        keys=cache.keys.at[rows_B1, :, positions_BT].set(k_BHTK.transpose(0, 2, 1, 3)),
        values=cache.values.at[rows_B1, :, positions_BT].set(v_BHTK.transpose(0, 2, 1, 3)),
    )
