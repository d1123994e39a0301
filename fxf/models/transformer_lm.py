"""TransformerLM (seed 004, "Definition of TransformerLM"): final ∘ N ∘ DB_n ∘ … ∘ DB_1 ∘ PE ∘ Em."""

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from fxf.config import TransformerConfig
from fxf.layers.block import blocks, blocks_spec, empty_caches
from fxf.layers.dropout import dropout, split
from fxf.layers.embedding import embedding, embedding_spec, final_layer, final_layer_spec
from fxf.layers.normalization import normalization_spec, normalize
from fxf.layers.positions import positional_encoding, positional_encoding_spec
from fxf.models.model import Batch, Model
from fxf.weights import Params, Spec, uniform_half, with_init


@flax.struct.dataclass
class Cache:
    """What decoding remembers: the blocks' keys and values, and the number of tokens read so far, int32 [B]."""

    blocks: Any
    lengths: jax.Array


def transformer_lm_spec(config: TransformerConfig, vocab_size: int) -> Spec:
    spec = {
        "embedding": embedding_spec(config, vocab_size),
        "positions": positional_encoding_spec(config),
        "blocks": blocks_spec(config),
        "norm": normalization_spec(config.d_model),
        "final": final_layer_spec(config, vocab_size),
    }
    return with_init(spec, uniform_half) if config.init == "uniform" else spec


def transformer_lm(config: TransformerConfig, vocab_size: int) -> Model:
    """Builds the model; tokens are 0 … vocab_size - 1."""

    def forward(
        params: Params, tokens_BT: jax.Array, positions_BT: jax.Array, caches: Any = None, rng: jax.Array | None = None
    ) -> tuple[jax.Array, Any]:
        rng_embedding, rng_blocks = split(rng, 2)
        x_BTD = embedding(params["embedding"], tokens_BT)
        x_BTD = positional_encoding(params["positions"], x_BTD, positions_BT)
        x_BTD = dropout(rng_embedding, x_BTD, config.dropout)
        x_BTD, caches = blocks(config, params["blocks"], x_BTD, positions_BT, caches=caches, rng=rng_blocks)
        x_BTD = normalize(params["norm"], x_BTD)
        return final_layer(params["final"], x_BTD), caches

    def apply(params: Params, batch: Batch, *, rng: jax.Array | None = None) -> jax.Array:
        tokens_BT = batch["inputs"]
        return forward(params, tokens_BT, jnp.arange(tokens_BT.shape[1])[None], rng=rng)[0]

    def prefill(params: Params, batch: Batch, length: int) -> Cache:
        tokens_BT = batch["inputs"]
        caches = empty_caches(config, tokens_BT.shape[0], length, params["embedding"]["table"].dtype)
        # Padding is written too, at positions that no query attends to before a later token overwrites them.
        _, caches = forward(params, tokens_BT, jnp.arange(tokens_BT.shape[1])[None], caches)
        return Cache(caches, batch["lengths"])

    def step(params: Params, cache: Cache, tokens_B: jax.Array) -> tuple[jax.Array, Cache]:
        logits_B1V, caches = forward(params, tokens_B[:, None], cache.lengths[:, None], cache.blocks)
        return logits_B1V[:, 0], Cache(caches, cache.lengths + 1)

    return Model(transformer_lm_spec(config, vocab_size), apply, prefill, step)
