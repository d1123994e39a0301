"""TransformerLM (seed 004, "Definition of TransformerLM"): final ∘ N ∘ DB_n ∘ … ∘ DB_1 ∘ PE ∘ Em."""

import dataclasses
import functools
from typing import Any, Literal

import jax

from fxf.config import key
from fxf.errors import UserError
from fxf.layers.block import blocks_spec, train_blocks
from fxf.layers.config import TransformerConfig
from fxf.layers.dropout import split
from fxf.layers.embedding import embedding, embedding_spec, final_layer, final_layer_spec, logits_from_table
from fxf.layers.mask import self_mask
from fxf.layers.normalization import normalization_spec, normalize
from fxf.layers.positions import position_penalty, whole_positions
from fxf.layers.transform import transform, transform_spec
from fxf.models.cached import prefill_and_step
from fxf.models.init import initialized_as
from fxf.models.model import Batch, Model, sizes_of
from fxf.weights import Params, Spec


@dataclasses.dataclass(frozen=True)
class TransformerLMConfig(TransformerConfig):
    """The `model` section for `transformer_lm`."""

    name: Literal["transformer_lm"] = key("transformer_lm", "the model to build")
    tied_embeddings: bool = key(False, "read logits from the embedding table")
    scaled_embeddings: bool = key(False, "multiply the rows of the embedding table by √d_model as tokens are embedded")
    head: Literal["linear", "transform"] = key(
        "linear",
        "linear: a linear map gives the logits; transform: a dense layer with activation and norm precedes it (BERT)",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.logits_bias and not self.tied_embeddings:
            raise UserError("model.logits_bias: only read with model.tied_embeddings; see model.final_bias")
        if self.tied_embeddings and not self.final_bias:
            raise UserError("model.final_bias: with model.tied_embeddings there is no final layer; leave it at True")


def transformer_lm_spec(config: TransformerLMConfig, vocab_size: int) -> Spec:
    """Returns the weights of the model."""
    spec = {
        "embedding": embedding_spec(config, vocab_size, unit_rows=config.tied_embeddings or config.scaled_embeddings),
        "blocks": blocks_spec(config),
        **({"norm": normalization_spec(config)} if config.final_norm else {}),
        **({"transform": transform_spec(config)} if config.head == "transform" else {}),
        **({} if config.tied_embeddings else {"final": final_layer_spec(config, vocab_size)}),
    }
    return initialized_as(config, spec)


def embed(
    config: TransformerLMConfig, params: Params, tokens_BT: jax.Array, positions_BT: jax.Array, **rest: Any
) -> jax.Array:
    """Returns the vectors of tokens at their positions, [B, T, D]; `rest` as in `embedding`."""
    return embedding(config, params["embedding"], tokens_BT, positions_BT, scaled=config.scaled_embeddings, **rest)


def whole_sequences(
    config: TransformerLMConfig, params: Params, batch: Batch, rng: jax.Array | None, *, causal: bool
) -> jax.Array:
    """Returns the residual stream after the last block [B, T, D].

    `batch` may have `input_mask` [B, T], which is false on padding, `positions` [B, T] of the tokens, and `documents`
    [B, T], the index of each token's document; attention then stays within a document.
    """
    rng_embedding, rng_blocks, rng_positions = split(rng, 3)
    tokens_BT = batch["inputs"]
    positions_BT, states_BMTJ, attended_positions = whole_positions(
        config, params["embedding"], tokens_BT, batch.get("positions"), rng_positions
    )
    is_token_BT, documents_BT = batch.get("input_mask"), batch.get("documents")
    mask = self_mask(config, attended_positions, causal=causal, is_token_BT=is_token_BT, documents_BT=documents_BT)
    rest = {"states_BMTJ": states_BMTJ, "segments_BT": batch.get("segments"), "rng": rng_embedding}
    x_BTD = embed(config, params, tokens_BT, positions_BT, **rest)
    return train_blocks(config, params["blocks"], x_BTD, mask, rng=rng_blocks)


def logits(config: TransformerLMConfig, params: Params, x: jax.Array) -> jax.Array:
    """Returns the logits [..., V] of the residual stream [..., D]."""
    x = normalize(config, params["norm"], x) if config.final_norm else x
    x = transform(config, params["transform"], x) if config.head == "transform" else x
    if config.tied_embeddings:
        return logits_from_table(config, params["embedding"], x)
    return final_layer(config, params["final"], x)


def transformer_lm(config: TransformerLMConfig, vocab_size: int) -> Model:
    """Builds the model; tokens are 0 … vocab_size - 1."""

    def features(params: Params, batch: Batch, *, rng: jax.Array | None = None) -> jax.Array:
        return whole_sequences(config, params, batch, rng, causal=True)

    def readout(params: Params, x: jax.Array) -> jax.Array:
        return logits(config, params, x)

    def parts(params: Params) -> tuple[Params, Params]:
        return params["embedding"], params["blocks"]

    prefill, step = prefill_and_step(config, functools.partial(embed, config), parts, readout)
    spec = transformer_lm_spec(config, vocab_size)
    penalty = position_penalty(config, "embedding")
    return Model(spec, features, readout, prefill, step, penalty=penalty, **sizes_of(config))
