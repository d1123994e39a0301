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
    """The keys and values of one attention layer for the positions seen so far, each [B, C, H, K]."""

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
    q_BTHK, k_BTHK, v_BTHK = (_project(x_BTD, params[name]) for name in ("query", "key", "value"))
    if cache is None:
        k_BCHK, v_BCHK, key_positions_C = k_BTHK, v_BTHK, jnp.arange(x_BTD.shape[1])
    else:
        rows_B1 = jnp.arange(x_BTD.shape[0])[:, None]
        cache = KeysValues(
            cache.keys.at[rows_B1, positions_BT].set(k_BTHK), cache.values.at[rows_B1, positions_BT].set(v_BTHK)
        )
        k_BCHK, v_BCHK, key_positions_C = cache.keys, cache.values, jnp.arange(cache.keys.shape[1])
    allowed_BTC = key_positions_C[None, None] <= positions_BT[..., None]
    scores_BHTC = jnp.einsum("BTHK,BCHK->BHTC", q_BTHK, k_BCHK) / math.sqrt(q_BTHK.shape[-1])
    weights_BHTC = jax.nn.softmax(jnp.where(allowed_BTC[:, None], scores_BHTC, -jnp.inf))
    weights_BHTC = dropout(rng, weights_BHTC, dropout_rate)
    heads_BTHK = jnp.einsum("BHTC,BCHK->BTHK", weights_BHTC, v_BCHK)
    output_DD = params["output"].reshape(-1, params["output"].shape[-1])
    return linear(heads_BTHK.reshape(x_BTD.shape), output_DD, params["output_bias"]), cache


def _project(x_BTD: jax.Array, w_DHK: jax.Array) -> jax.Array:
    """Maps [B, T, D] to [B, T, H, K]."""
    return linear(x_BTD, w_DHK.reshape(w_DHK.shape[0], -1)).reshape(*x_BTD.shape[:-1], *w_DHK.shape[1:])
