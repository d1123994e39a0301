"""Embedding of tokens as vectors (seed 004, "Embedding"), and logits from vectors (seed 004, "Final Layer")."""

import math

import jax
import jax.numpy as jnp

from fxf.base.config import one_of
from fxf.base.errors import UserError
from fxf.base.on_gpu import embedding_lookup
from fxf.base.weights import Params, Spec, Weight
from fxf.layers.config import TransformerConfig
from fxf.layers.dropout import dropout
from fxf.layers.feed_forward import ACTIVATIONS
from fxf.layers.linear import as_float32, linear, linear_spec, require_rows, soft_cap
from fxf.layers.named import named
from fxf.layers.normalization import normalization_spec, normalize
from fxf.layers.positions import POSITIONS, positional_encoding_spec


def embedding_spec(config: TransformerConfig, vocab_size: int, unit_rows: bool = False) -> Spec:
    """Returns the table of token vectors, and a table of positions, a norm and a bias if the config needs them.

    Args:
      unit_rows: whether rows of the table start with unit length, because logits are read from it too or its rows are
        multiplied by √d_model. Otherwise its elements start with unit variance, about the size of sinusoids added to
        them. With a `base_width`, elements start as large as the base's.
    """
    init = jax.nn.initializers.normal(1 / math.sqrt(config.base_d_model) if unit_rows else 1.0)
    bias = Weight((vocab_size,), ("vocabulary",), jax.nn.initializers.zeros)
    return {
        "table": Weight((vocab_size, config.d_model), ("vocabulary", "embed"), init),
        **positional_encoding_spec(config),
        **({"norm": normalization_spec(config)} if config.embedding_norm else {}),
        **({"logits_bias": bias} if config.logits_bias else {}),
    }


def embedding(
    config: TransformerConfig,
    params: Params,
    tokens_BT: jax.Array,
    positions_BT: jax.Array,
    *,
    segments_BT: jax.Array | None = None,
    scaled: bool = False,
    rng: jax.Array | None = None,
) -> jax.Array:
    """Returns the vectors of tokens with their positional encoding, after dropout: int32 [B, T] to [B, T, D].

    In place of tokens there may be vectors [B, T, F], floats, which are multiplied by the first F rows of the table: so
    a one-hot vector stands for its token. Tokens or segments that are not ints, or not in their table, raise a
    UserError. Under `jax.jit` their values are unknown, and one outside the table gets the vector of another.

    Args:
      segments_BT: the segment of each token, if the params have a table of segments; None for 0.
      scaled: whether to multiply the table's rows by √d_model (seed 003, where logits are read from the same table), or
        by √base_width if there is one.
    """
    with jax.named_scope("embedding"):
        if tokens_BT.ndim == 3:
            n_rows = len(params["table"])
            if tokens_BT.shape[2] > n_rows:
                raise UserError(f"inputs: {tokens_BT.shape[2]} numbers in a vector; the embedding has {n_rows} rows")
            x_BTD = linear(as_float32(tokens_BT), params["table"][: tokens_BT.shape[2]])
        else:
            require_rows("tokens", tokens_BT, params["table"])
            x_BTD = embedding_lookup(params["table"], tokens_BT)
        if scaled:
            x_BTD = x_BTD * jnp.sqrt(jnp.asarray(config.base_d_model, x_BTD.dtype))
        if "segments" in params:
            segments_BT = jnp.zeros(tokens_BT.shape[:2], jnp.int32) if segments_BT is None else segments_BT
            require_rows("segments", segments_BT, params["segments"])
            x_BTD = x_BTD + embedding_lookup(params["segments"], segments_BT)
        if embed := POSITIONS[config.positions].embed:
            x_BTD = x_BTD + named("positions", embed(params, positions_BT, config.d_model).astype(x_BTD.dtype))
        if config.embedding_norm:
            x_BTD = normalize(config, params["norm"], x_BTD)
        return named("residual", dropout(rng, x_BTD, config.embedding_dropout).astype(config.dtype))


def final_layer_spec(config: TransformerConfig, vocab_size: int) -> Spec:
    """Returns the weights of the map from vectors to logits."""
    return linear_spec({"embed": config.d_model, "vocabulary": vocab_size}, config.final_bias, size=config.base_d_model)


def final_layer(config: TransformerConfig, params: Params, x: jax.Array) -> jax.Array:
    """Returns logits [..., V] of vectors [..., D], by the final layer, or by the embedding table if there is none.

    x is multiplied by base_width / d_model, so that a step of the same size moves the logits as much as in the base.
    """
    x = x if config.base_d_model == config.d_model else x * (config.base_d_model / config.d_model)
    weight, bias = (params["kernel"], "bias") if "kernel" in params else (params["table"].T, "logits_bias")
    return soft_cap(as_float32(linear(x, weight, params.get(bias))), config.logit_softcap)


def transform_spec(config: TransformerConfig) -> Spec:
    """Returns the weights of a dense layer before the map to logits (Devlin et al. 2018, for masked tokens)."""
    one_of(config.activation, ACTIVATIONS, "model.activation")
    return {**linear_spec({"embed": config.d_model, "mlp": config.d_model}), "norm": normalization_spec(config)}


def transform(config: TransformerConfig, params: Params, x: jax.Array) -> jax.Array:
    """Returns norm(activation(x kernel + bias)) for x [..., D]."""
    hidden = ACTIVATIONS[config.activation](linear(x, params["kernel"], params["bias"]))
    return normalize(config, params["norm"], hidden)
