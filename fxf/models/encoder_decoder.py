"""Encoder–decoder transformer (seed 000, "Encoder and Decoder Stack"; seed 003, "Encoder", "Decoder")."""

import dataclasses
from typing import Any, Literal

import jax

from fxf.config import key
from fxf.errors import UserError
from fxf.layers.block import Source, blocks_spec, train_blocks
from fxf.layers.config import CrossAttentionConfig
from fxf.layers.dropout import split
from fxf.layers.embedding import embedding, embedding_spec, final_layer, final_layer_spec, logits_from_table
from fxf.layers.mask import cross_mask, self_mask
from fxf.layers.normalization import normalization_spec, normalize
from fxf.layers.positions import position_penalty, whole_positions
from fxf.models.cached import prefill_and_step
from fxf.models.init import initialized_as
from fxf.models.model import Batch, Model, sizes_of
from fxf.weights import Params, Spec


@dataclasses.dataclass(frozen=True)
class EncoderDecoderConfig(CrossAttentionConfig):
    """The `model` section for `encoder_decoder`."""

    name: Literal["encoder_decoder"] = key("encoder_decoder", "the model to build")
    embeddings: Literal["separate", "shared"] = key(
        "separate",
        "separate tables for source, target and output; or one shared table, whose rows are multiplied by √d_model",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.logits_bias and self.embeddings == "separate":
            raise UserError("model.logits_bias: only read with model.embeddings 'shared'; see model.final_bias")
        if self.embeddings == "shared" and not self.final_bias:
            raise UserError(
                "model.final_bias: with model.embeddings 'shared' there is no final layer; leave it at True"
            )


SIDES = ("source", "target")

# The choices of the two seeds that describe such a model. Other keys keep their defaults.
PRESETS: dict[str, dict[str, Any]] = {
    # Seed 000. Cross-attention normalizes the encoder's output and not its queries. No norm follows a stack.
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
    """Returns the weights of the model."""
    stacks = {
        "encoder": {"blocks": blocks_spec(config)},
        "decoder": {"blocks": blocks_spec(config, cross=True)},
    }
    if config.final_norm:
        stacks = {name: {**stack, "norm": normalization_spec(config)} for name, stack in stacks.items()}
    if config.embeddings == "shared":
        spec = {"embedding": embedding_spec(config, vocab_size, unit_rows=True), **stacks}
    else:
        spec = {
            "source_embedding": embedding_spec(config, vocab_size),
            "target_embedding": embedding_spec(config, vocab_size),
            **stacks,
            "final": final_layer_spec(config, vocab_size),
        }
    return initialized_as(config, spec)


def encoder_decoder(config: EncoderDecoderConfig, vocab_size: int) -> Model:
    """Builds the model; source and target tokens are 0 … vocab_size - 1.

    A batch has `source` [B, S] with `source_mask` [B, S], false on padding, and the decoder's `inputs` [B, T]. It may
    have `source_positions` [B, S] and `positions` [B, T].
    """
    shared = config.embeddings == "shared"

    tables = dict.fromkeys(SIDES, "embedding") if shared else {side: f"{side}_embedding" for side in SIDES}

    def embed(params: Params, tokens: jax.Array, positions: jax.Array, side: str = "target", **rest: Any) -> jax.Array:
        return embedding(config, params[tables[side]], tokens, positions, scaled=shared, **rest)

    def placed(
        params: Params, side: str, tokens_BT: jax.Array, given_BT: jax.Array | None, rngs: list[jax.Array | None]
    ) -> tuple[jax.Array, jax.Array]:
        """Returns the vectors of the tokens, and the positions that attention reads; `rngs` of both or two None."""
        rng_embedding, rng_positions = rngs
        name = "source" if side == "source" else "inputs"
        of_tokens = (params[tables[side]], tokens_BT, given_BT, rng_positions, name)
        positions_BT, states_BMTJ, attended_positions = whole_positions(config, *of_tokens)
        x_BTD = embed(params, tokens_BT, positions_BT, side, states_BMTJ=states_BMTJ, rng=rng_embedding)
        return x_BTD, attended_positions

    def final_norm(stack_params: Params, x: jax.Array) -> jax.Array:
        return normalize(config, stack_params["norm"], x) if config.final_norm else x

    def encode(params: Params, batch: Batch, rng: jax.Array | None = None) -> Source:
        """Returns the encoder's output [B, S, D], and the mask of cross-attention."""
        rng_embedding, rng_blocks, rng_positions = split(rng, 3)
        source_BS, is_token_BS = batch["source"], batch["source_mask"]
        rngs = [rng_embedding, rng_positions]
        with jax.named_scope("encoder"):
            x_BSD, attended_positions = placed(params, "source", source_BS, batch.get("source_positions"), rngs)
            mask = self_mask(config, attended_positions, causal=False, is_token_BT=is_token_BS)
            x_BSD = train_blocks(config, params["encoder"]["blocks"], x_BSD, mask, rng=rng_blocks)
            return final_norm(params["encoder"], x_BSD), cross_mask(is_token_BS)

    def features(params: Params, batch: Batch, *, rng: jax.Array | None = None) -> jax.Array:
        rng_encoder, rng_embedding, rng_blocks, rng_positions = split(rng, 4)
        source = encode(params, batch, rng_encoder)
        tokens_BT = batch["inputs"]
        rngs = [rng_embedding, rng_positions]
        with jax.named_scope("decoder"):
            x_BTD, attended_positions = placed(params, "target", tokens_BT, batch.get("positions"), rngs)
            mask = self_mask(config, attended_positions, causal=True)
            return train_blocks(config, params["decoder"]["blocks"], x_BTD, mask, source=source, rng=rng_blocks)

    def readout(params: Params, x: jax.Array) -> jax.Array:
        x = final_norm(params["decoder"], x)
        if shared:
            return logits_from_table(config, params["embedding"], x)
        return final_layer(config, params["final"], x)

    def parts(params: Params) -> tuple[Params, Params]:
        return params[tables["target"]], params["decoder"]["blocks"]

    prefill, step = prefill_and_step(config, embed, parts, readout, encode)
    options = {"penalty": position_penalty(config, *dict.fromkeys(tables.values())), **sizes_of(config)}
    return Model(encoder_decoder_spec(config, vocab_size), features, readout, prefill, step, **options)
