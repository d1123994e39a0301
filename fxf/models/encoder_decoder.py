"""Encoder–decoder transformer (seed 000, "Encoder and Decoder Stack"; seed 003, "Encoder", "Decoder")."""

import dataclasses
import functools
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp

from fxf.base.config import key
from fxf.base.weights import Params, Spec
from fxf.layers.block import Stack
from fxf.layers.config import TransformerConfig
from fxf.layers.dropout import split
from fxf.layers.embedding import embedding, embedding_spec, final_layer, final_layer_spec
from fxf.layers.kinds import stack_of
from fxf.layers.layer import Context
from fxf.layers.normalization import normalization_spec, normalize
from fxf.layers.positions import places_of
from fxf.models.model import Batch, Model
from fxf.models.transformer_lm import Source, TransformerLM


@dataclasses.dataclass(frozen=True)
class EncoderDecoderConfig(TransformerConfig):
    """The `model` section for `encoder_decoder`."""

    name: Literal["encoder_decoder"] = key("encoder_decoder", "the model to build")
    embeddings: Literal["separate", "shared"] = key(
        "separate", "tables for source, target and output; or one shared by all, with rows multiplied by √d_model"
    )

    cross_norm: Literal["queries", "source"] = key(
        "queries", "cross-attention normalizes its queries (decoder) or its source (encoder)", when="block=pre_norm"
    )


@dataclasses.dataclass(frozen=True)
class EncoderDecoder(TransformerLM):
    """The functions of the model; a `Model` has them."""

    config: EncoderDecoderConfig  # type: ignore[assignment]
    encoder: Stack
    scope: ClassVar[Any] = staticmethod(functools.partial(jax.named_scope, "decoder"))

    @property
    def shared(self) -> bool:
        """Whether source, target and logits have one table."""
        return self.config.embeddings == "shared"

    def spec(self) -> Spec:
        """Returns the weights of the model."""
        config, of_tokens = self.config, (self.config, self.vocab_size)
        norm = {"norm": normalization_spec(config)} if config.final_norm else {}
        sides = {"encoder": self.encoder, "decoder": self.decoder}
        stacks = {side: {"blocks": stack.spec(), **norm} for side, stack in sides.items()}
        if self.shared:
            return {"embedding": embedding_spec(*of_tokens, unit_rows=True), **stacks}
        tables = {f"{side}_embedding": embedding_spec(*of_tokens) for side in ("source", "target")}
        return {**tables, **stacks, "final": final_layer_spec(*of_tokens)}

    def keys(self, rng: jax.Array | None) -> list[jax.Array | None]:
        return split(rng, 4)

    def source(self, params: Params, batch: Batch, rng: jax.Array | None = None) -> Source:
        """Returns the encoder's output [B, S, D], and its places for cross-attention.

        A batch has `source`, tokens [B, S] or vectors [B, S, F]. It may have `source_mask` [B, S], false on padding,
        and `source_positions` [B, S].
        """
        rng_embedding, rng_blocks, rng_positions = split(rng, 3)
        names = {"inputs": "source", "input_mask": "source_mask", "positions": "source_positions"}
        side = {"inputs": batch["source"], **{name: batch[there] for name, there in names.items() if there in batch}}
        with jax.named_scope("encoder"):
            places = places_of(self.config, side, rng_positions, causal=False, name="source")
            x_BSD = self.embed(params, side["inputs"], places.positions, side="source", rng=rng_embedding)
            context = Context(places, side["inputs"], rng=rng_blocks)
            x, _ = self.encoder.apply(params["encoder"]["blocks"], self.encoder.start(x_BSD), context)
            x_BSD = self._final_norm(params["encoder"], self.encoder.finish(x))
            seen_BS = places.documents
            if seen_BS is not None:  # a row of only padding counts as all tokens: attention to nothing is NaN
                seen_BS = jnp.where((seen_BS > 0).any(axis=1, keepdims=True), seen_BS, 1)
            return x_BSD, places.replace(documents=seen_BS)

    def of_decoder(self, params: Params) -> Params:
        return params["decoder"]["blocks"]

    def embed(self, params: Params, tokens_RT: jax.Array, positions_RT: jax.Array, **rest: Any) -> jax.Array:
        """Returns the vectors of tokens, [R, T, D]; `side="source"` is the encoder's; `rest` as in `embedding`."""
        side, config = rest.pop("side", "target"), self.config
        table = params["embedding" if self.shared else f"{side}_embedding"]
        return embedding(config, table, tokens_RT, positions_RT, scaled=self.shared, **rest)

    def readout(self, params: Params, x: jax.Array) -> jax.Array:
        """Returns the logits [..., V] of the residual stream [..., D]."""
        x = self._final_norm(params["decoder"], x)
        return final_layer(self.config, params["embedding" if self.shared else "final"], x)

    def _final_norm(self, params: Params, x: jax.Array) -> jax.Array:
        return normalize(self.config, params["norm"], x) if self.config.final_norm else x


def encoder_decoder(config: EncoderDecoderConfig, vocab_size: int) -> Model:
    """Builds the model; source and target tokens are 0 … vocab_size - 1."""
    encoder, decoder = (stack_of(config, cross=cross, vocab_size=vocab_size) for cross in (False, True))
    return EncoderDecoder(config, vocab_size, decoder, encoder).model(encoder)
