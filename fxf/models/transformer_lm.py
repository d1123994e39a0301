"""TransformerLM (seed 004, "Definition of TransformerLM"): final ∘ N ∘ DB_n ∘ … ∘ DB_1 ∘ PE ∘ Em."""

import jax
import jax.numpy as jnp

from fxf.config import TransformerConfig
from fxf.layers.block import blocks_spec, cached_blocks, empty_caches, train_blocks
from fxf.layers.dropout import split
from fxf.layers.embedding import embedding, embedding_spec, final_layer, final_layer_spec
from fxf.layers.normalization import normalization_spec, normalize
from fxf.models.model import Batch, Cache, Model
from fxf.weights import Params, Spec, uniform_half, with_init


def transformer_lm_spec(config: TransformerConfig, vocab_size: int) -> Spec:
    spec = {
        "embedding": embedding_spec(config, vocab_size),
        "blocks": blocks_spec(config),
        **({"norm": normalization_spec(config)} if config.final_norm else {}),
        "final": final_layer_spec(config, vocab_size),
    }
    return with_init(spec, uniform_half) if config.init == "uniform" else spec


def transformer_lm(config: TransformerConfig, vocab_size: int) -> Model:
    """Builds the model; tokens are 0 … vocab_size - 1."""

    def features(params: Params, batch: Batch, *, rng: jax.Array | None = None) -> jax.Array:
        tokens_BT = batch["inputs"]
        positions_1T = jnp.arange(tokens_BT.shape[1])[None]
        causal_1TT = positions_1T[:, None] <= positions_1T[..., None]
        rng_embedding, rng_blocks = split(rng, 2)
        x_BTD = embedding(config, params["embedding"], tokens_BT, positions_1T, rng=rng_embedding)
        x_BTD = train_blocks(config, params["blocks"], x_BTD, causal_1TT, rng=rng_blocks)
        return normalize(config, params["norm"], x_BTD) if config.final_norm else x_BTD

    def readout(params: Params, x_BTD: jax.Array) -> jax.Array:
        return final_layer(params["final"], x_BTD)

    def cached(params: Params, cache: Cache, tokens_BT: jax.Array, positions_BT: jax.Array) -> tuple[jax.Array, Cache]:
        x_BTD = embedding(config, params["embedding"], tokens_BT, positions_BT)
        x_BTD, caches = cached_blocks(config, params["blocks"], x_BTD, positions_BT, cache.blocks)
        x_BTD = normalize(config, params["norm"], x_BTD) if config.final_norm else x_BTD
        return readout(params, x_BTD), Cache(caches, cache.lengths + 1)

    def prefill(params: Params, batch: Batch, length: int) -> Cache:
        tokens_BT = batch["inputs"]
        caches = empty_caches(config, tokens_BT.shape[0], length, params["embedding"]["table"].dtype)
        cache = Cache(caches, batch["lengths"])
        # Padding is written too, at positions that no query attends to before a later token overwrites them.
        _, read = cached(params, cache, tokens_BT, jnp.arange(tokens_BT.shape[1])[None])
        return Cache(read.blocks, batch["lengths"])

    def step(params: Params, cache: Cache, tokens_B: jax.Array) -> tuple[jax.Array, Cache]:
        logits_B1V, cache = cached(params, cache, tokens_B[:, None], cache.lengths[:, None])
        return logits_B1V[:, 0], cache

    return Model(transformer_lm_spec(config, vocab_size), features, readout, prefill, step)
