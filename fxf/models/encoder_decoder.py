"""Encoder–decoder transformer (seed 000, "Encoder and Decoder Stack"; seed 003, "Encoder", "Decoder")."""

from typing import Any

import jax
import jax.numpy as jnp

from fxf.config import EncoderDecoderConfig
from fxf.layers.attention import KeysValues
from fxf.layers.block import blocks_spec, cached_blocks, cross_keys_values, empty_caches, one_block, train_blocks
from fxf.layers.dropout import split
from fxf.layers.embedding import embedding, embedding_spec, final_layer, final_layer_spec
from fxf.layers.linear import linear
from fxf.layers.normalization import normalization_spec, normalize
from fxf.models.model import Batch, Cache, Model
from fxf.weights import Params, Spec, uniform_half, with_init

# The choices of the two seeds that describe such a model; what they leave open keeps its default.
PRESETS: dict[str, dict[str, Any]] = {
    # Seed 000. Its cross-attention normalizes the encoder's output and not its own queries; no norm ends a stack.
    "wolfram": {
        **{"n_layers": 6, "d_model": 128, "d_ff": 512, "n_heads": 8, "max_len": 512},
        **{"dropout": 0.1, "embedding_dropout": 0.1, "attention_dropout": 0.0, "activation": "gelu"},
        **{"block": "pre_norm", "cross_norm": "source", "final_norm": False},
        **{"norm_epsilon": 1e-4, "norm_epsilon_in": "variance"},
        **{"positions": "learned", "attention_bias": "all", "embeddings": "separate"},
    },
    # Seed 003, which has no dropout.
    "annotated": {
        **{"n_layers": 6, "d_model": 512, "d_ff": 2048, "n_heads": 8, "max_len": 20},
        **{"dropout": 0.0, "embedding_dropout": 0.0, "attention_dropout": 0.0, "activation": "relu"},
        **{"block": "post_norm", "final_norm": False, "norm_epsilon": 1e-5, "norm_epsilon_in": "variance"},
        **{"positions": "sinusoidal", "attention_bias": "none", "embeddings": "shared"},
    },
}


def encoder_decoder_spec(config: EncoderDecoderConfig, vocab_size: int) -> Spec:
    stacks = {
        "encoder": {"blocks": blocks_spec(config)},
        "decoder": {"blocks": blocks_spec(config, cross=True)},
    }
    if config.final_norm:
        stacks = {name: {**stack, "norm": normalization_spec(config)} for name, stack in stacks.items()}
    if config.embeddings == "shared":
        spec = {"embedding": embedding_spec(config, vocab_size, scaled=True), **stacks}
    else:
        spec = {
            "source_embedding": embedding_spec(config, vocab_size),
            "target_embedding": embedding_spec(config, vocab_size),
            **stacks,
            "final": final_layer_spec(config, vocab_size),
        }
    return with_init(spec, uniform_half) if config.init == "uniform" else spec


def encoder_decoder(config: EncoderDecoderConfig, vocab_size: int) -> Model:
    """Builds the model; source and target tokens are 0 … vocab_size - 1.

    A batch holds `source` [B, S] with `source_mask` [B, S], true where a token counts, beside the decoder's `inputs`.
    """
    shared = config.embeddings == "shared"

    def embed(
        params: Params, side: str, tokens_BT: jax.Array, positions_BT: jax.Array, rng: jax.Array | None = None
    ) -> jax.Array:
        table = params["embedding" if shared else f"{side}_embedding"]
        return embedding(config, table, tokens_BT, positions_BT, scaled=shared, rng=rng)

    def ended(stack_params: Params, x_BTD: jax.Array) -> jax.Array:
        return normalize(config, stack_params["norm"], x_BTD) if config.final_norm else x_BTD

    def encode(params: Params, batch: Batch, rng: jax.Array | None = None) -> tuple[jax.Array, jax.Array]:
        """Returns the encoder's output [B, S, D], and which of its positions count [B, 1, S]."""
        rng_embedding, rng_blocks = split(rng, 2)
        source_BS, allowed_B1S = batch["source"], batch["source_mask"][:, None]
        x_BSD = embed(params, "source", source_BS, jnp.arange(source_BS.shape[1])[None], rng_embedding)
        x_BSD = train_blocks(config, params["encoder"]["blocks"], x_BSD, allowed_B1S, rng=rng_blocks)
        return ended(params["encoder"], x_BSD), allowed_B1S

    def features(params: Params, batch: Batch, *, rng: jax.Array | None = None) -> jax.Array:
        rng_encoder, rng_embedding, rng_blocks = split(rng, 3)
        source_BSD, source_allowed_B1S = encode(params, batch, rng_encoder)
        tokens_BT = batch["inputs"]
        positions_1T = jnp.arange(tokens_BT.shape[1])[None]
        x_BTD = train_blocks(
            config,
            params["decoder"]["blocks"],
            embed(params, "target", tokens_BT, positions_1T, rng_embedding),
            positions_1T[:, None] <= positions_1T[..., None],
            source_BSD=source_BSD,
            source_allowed_BTS=source_allowed_B1S,
            rng=rng_blocks,
        )
        return ended(params["decoder"], x_BTD)

    def readout(params: Params, x_BTD: jax.Array) -> jax.Array:
        if shared:
            return linear(x_BTD, params["embedding"]["table"].T)
        return final_layer(params["final"], x_BTD)

    def decode(params: Params, cache: Cache, tokens_BT: jax.Array, positions_BT: jax.Array) -> tuple[jax.Array, Cache]:
        sources, source_allowed_B1S = cache.source
        x_BTD, caches = cached_blocks(
            config,
            params["decoder"]["blocks"],
            embed(params, "target", tokens_BT, positions_BT),
            positions_BT,
            cache.blocks,
            sources=sources,
            source_allowed_BTS=source_allowed_B1S,
        )
        return ended(params["decoder"], x_BTD), cache.replace(blocks=caches)  # type: ignore[attr-defined]

    def prefill(params: Params, batch: Batch, length: int) -> Cache:
        tokens_BT = batch["inputs"]
        source_BSD, source_allowed_B1S = encode(params, batch)
        caches = empty_caches(config, tokens_BT.shape[0], length, source_BSD.dtype)
        cache = Cache(caches, batch["lengths"], (cross_sources(params, source_BSD), source_allowed_B1S))
        # Padding is written too, at positions that no query attends to before a later token overwrites them.
        return decode(params, cache, tokens_BT, jnp.arange(tokens_BT.shape[1])[None])[1] if tokens_BT.size else cache

    def cross_sources(params: Params, source_BSD: jax.Array) -> tuple[KeysValues, ...]:
        blocks = params["decoder"]["blocks"]
        return tuple(cross_keys_values(config, one_block(blocks, i), source_BSD) for i in range(config.n_layers))

    def step(params: Params, cache: Cache, tokens_B: jax.Array) -> tuple[jax.Array, Cache]:
        x_B1D, cache = decode(params, cache, tokens_B[:, None], cache.lengths[:, None])
        return readout(params, x_B1D[:, 0]), cache.replace(lengths=cache.lengths + 1)  # type: ignore[attr-defined]

    return Model(encoder_decoder_spec(config, vocab_size), features, readout, prefill, step)
