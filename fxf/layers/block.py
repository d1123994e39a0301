"""Decoder block (seed 004, "DecoderBlock Definition" and "inspirational idea")."""

import jax

from fxf.config import TransformerConfig
from fxf.layers.attention import KeysValues, attention, attention_spec
from fxf.layers.dropout import dropout, split
from fxf.layers.feed_forward import feed_forward, feed_forward_spec
from fxf.layers.normalization import normalization_spec, normalize
from fxf.weights import Params, Spec


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
