"""Decoder block (seed 004, "DecoderBlock Definition" and "inspirational idea"), and a stack of them."""

from typing import Any

import jax
import jax.numpy as jnp

from fxf.config import TransformerConfig
from fxf.layers.attention import KeysValues, attention, attention_spec
from fxf.layers.dropout import dropout, split
from fxf.layers.feed_forward import feed_forward, feed_forward_spec
from fxf.layers.normalization import normalization_spec, normalize
from fxf.weights import Params, Spec, stack


def block_spec(config: TransformerConfig) -> Spec:
    return {
        "norm": normalization_spec(config.d_model),
        "attention": attention_spec(config),
        "feed_forward": feed_forward_spec(config),
    }


def block(
    config: TransformerConfig,
    params: Params,
    x_BTD: jax.Array,
    positions_BT: jax.Array,
    *,
    cache: KeysValues | None = None,
    rng: jax.Array | None = None,
) -> tuple[jax.Array, KeysValues | None]:
    """X + CA(N X) + FF(X + CA(N X)), or with block='idea' X + FF(X + CA(N X)).

    Returns:
      [B, T, D], and the attention layer's cache with the keys and values of x_BTD.
    """
    rng_weights, rng_attention, rng_feed_forward = split(rng, 3)
    attended_BTD, cache = attention(
        params["attention"],
        normalize(params["norm"], x_BTD),
        positions_BT,
        cache=cache,
        rng=rng_weights,
        dropout_rate=config.dropout,
    )
    middle_BTD = x_BTD + dropout(rng_attention, attended_BTD, config.dropout)
    residual_BTD = middle_BTD if config.block == "definition" else x_BTD
    change_BTD = feed_forward(params["feed_forward"], middle_BTD)
    return residual_BTD + dropout(rng_feed_forward, change_BTD, config.dropout), cache


def blocks_spec(config: TransformerConfig) -> Spec:
    return stack(block_spec(config), config.n_layers)


def empty_caches(config: TransformerConfig, batch_size: int, length: int, dtype: Any) -> Any:
    """Returns a cache for `blocks` with room for `length` positions a row."""
    shape = (batch_size, config.n_heads, length, config.d_model // config.n_heads)
    if config.scan_blocks:
        zeros = jnp.zeros((config.n_layers, *shape), dtype)
        return KeysValues(zeros, zeros)
    zeros = jnp.zeros(shape, dtype)
    return (KeysValues(zeros, zeros),) * config.n_layers


def blocks(
    config: TransformerConfig,
    params: Params,
    x_BTD: jax.Array,
    positions_BT: jax.Array,
    *,
    caches: Any = None,
    rng: jax.Array | None = None,
) -> tuple[jax.Array, Any]:
    """Runs `n_layers` blocks, whose params are stacked on a leading layers axis.

    With scan_blocks the compiled program holds one block and loops over it, and the caches are stacked too. Without, it
    holds every block, and the caches are a tuple of one a block, which a decoding loop can update in place.

    Returns:
      [B, T, D], and the caches with the keys and values of x_BTD (None without caches).
    """

    def one_block(x_BTD: jax.Array, layer: Any) -> tuple[jax.Array, KeysValues | None]:
        block_params, cache, block_rng = layer
        return block(config, block_params, x_BTD, positions_BT, cache=cache, rng=block_rng)

    rngs = None if rng is None else jax.random.split(rng, config.n_layers)
    if config.scan_blocks:
        return jax.lax.scan(one_block, x_BTD, (params, caches, rngs))
    written = []
    for i in range(config.n_layers):
        block_params = jax.tree.map(lambda w, i=i: w[i], params)
        x_BTD, cache = one_block(x_BTD, (block_params, caches and caches[i], None if rngs is None else rngs[i]))
        written.append(cache)
    return x_BTD, caches and tuple(written)
