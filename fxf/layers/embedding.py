"""Token embedding (seed 004, "Embedding") and final layer (seed 004, "Final Layer")."""

import jax

from fxf.config import TransformerConfig
from fxf.layers.linear import linear
from fxf.weights import Params, Spec, Weight, fan_in


def embedding_spec(config: TransformerConfig, vocab_size: int) -> Spec:
    # Rows of unit variance, the size of the sinusoids they are added to.
    return {"table": Weight((vocab_size, config.d_model), ("vocabulary", "embed"), jax.nn.initializers.normal(1.0))}


def embedding(params: Params, tokens_BT: jax.Array) -> jax.Array:
    """Looks up one row a token: int32 [B, T] to [B, T, D]."""
    return params["table"][tokens_BT]


def final_layer_spec(config: TransformerConfig, vocab_size: int) -> Spec:
    return {
        "kernel": Weight((config.d_model, vocab_size), ("embed", "vocabulary"), fan_in()),
        "bias": Weight((vocab_size,), ("vocabulary",), jax.nn.initializers.zeros),
    }


def final_layer(params: Params, x_BTD: jax.Array) -> jax.Array:
    """Maps vectors to logits: [B, T, D] to [B, T, V]."""
    return linear(x_BTD, params["kernel"], params["bias"])
