"""From tokens to vectors (seed 004, "Embedding") and from vectors to logits (seed 004, "Final Layer")."""

import math

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from fxf.config import TransformerConfig
from fxf.layers.dropout import dropout
from fxf.layers.linear import linear
from fxf.layers.positions import positional_encoding, positional_encoding_spec
from fxf.weights import Params, Spec, Weight, fan_in


def embedding_spec(config: TransformerConfig, vocab_size: int, unit_rows: bool = False) -> Spec:
    """The table of token vectors, and the table of positions where the config asks for one.

    Args:
      unit_rows: start with rows of unit length, as logits want that are read from the table; else with elements of
        unit variance, the size of the sinusoids they are added to.
    """
    init = jax.nn.initializers.normal(1 / math.sqrt(config.d_model) if unit_rows else 1.0)
    table = Weight((vocab_size, config.d_model), ("vocabulary", "embed"), init)
    return {"table": table, **positional_encoding_spec(config)}


def embedding(
    config: TransformerConfig,
    params: Params,
    tokens_BT: jax.Array,
    positions_BT: jax.Array,
    *,
    scaled: bool = False,
    rng: jax.Array | None = None,
) -> jax.Array:
    """Looks up one row a token, adds its position's encoding, and drops out: int32 [B, T] to [B, T, D].

    Args:
      scaled: read the rows times √d_model (seed 003, where logits are read from the same table).
    """
    with jax.named_scope("embedding"):
        x_BTD = params["table"][tokens_BT]
        if scaled:
            x_BTD = x_BTD * jnp.sqrt(jnp.asarray(config.d_model, x_BTD.dtype))
        x_BTD = positional_encoding(config, params, x_BTD, positions_BT)
        return checkpoint_name(dropout(rng, x_BTD, config.embedding_dropout).astype(config.dtype), "residual")


def logits_from_table(config: TransformerConfig, params: Params, x_BTD: jax.Array) -> jax.Array:
    """Maps vectors to logits by the table of token vectors, [B, T, D] to [B, T, V]."""
    return soft_cap(config, linear(x_BTD, params["table"].T))


def soft_cap(config: TransformerConfig, logits: jax.Array) -> jax.Array:
    """Keeps logits within ±model.logit_softcap, softly (Gemma Team 2024), in float32."""
    cap, logits = config.logit_softcap, logits.astype(jnp.float32)
    return cap * jnp.tanh(logits / cap) if cap else logits


def final_layer_spec(config: TransformerConfig, vocab_size: int) -> Spec:
    return {
        "kernel": Weight((config.d_model, vocab_size), ("embed", "vocabulary"), fan_in()),
        "bias": Weight((vocab_size,), ("vocabulary",), jax.nn.initializers.zeros),
    }


def final_layer(config: TransformerConfig, params: Params, x_BTD: jax.Array) -> jax.Array:
    """Maps vectors to logits: [B, T, D] to [B, T, V]."""
    return soft_cap(config, linear(x_BTD, params["kernel"], params["bias"]))
