"""TransformerLM (seed 004, "Definition of TransformerLM"): final ∘ N ∘ DB_n ∘ … ∘ DB_1 ∘ PE ∘ Em.

And an encoder of the same layers that predicts masked tokens (seed 001, "Tokenization"; Devlin et al. 2018).
"""

import dataclasses
from typing import Any, Literal

import jax

from fxf.base.config import key
from fxf.base.weights import Params, Spec, Weight
from fxf.layers.block import Stack, require_documents
from fxf.layers.config import TransformerConfig
from fxf.layers.dropout import split
from fxf.layers.embedding import embedding, embedding_spec, final_layer, final_layer_spec, transform, transform_spec
from fxf.layers.kinds import stack_of
from fxf.layers.layer import Context
from fxf.layers.normalization import normalization_spec, normalize
from fxf.layers.positions import places_of, random_rows
from fxf.models.decoding import CachedDecoding, WholeSequences
from fxf.models.init import initialized_as
from fxf.models.model import Batch, Model, sizes_of


@dataclasses.dataclass(frozen=True)
class TransformerLMConfig(TransformerConfig):
    """The `model` section for `transformer_lm`."""

    name: Literal["transformer_lm"] = key("transformer_lm", "the model to build")
    tied_embeddings: bool = key(
        False,
        "read logits from the embedding table, whose rows then start with length 1; sinusoids have √(d_model / 2), so "
        "set scaled_embeddings with them",
    )
    scaled_embeddings: bool = key(False, "multiply the rows of the embedding table by √d_model as tokens are embedded")
    head: Literal["linear", "transform"] = key("linear", "logits by a linear map, or after a dense layer too (BERT)")

    UNREAD = (
        *TransformerConfig.UNREAD,
        ("tied_embeddings", True, {"final_bias": True}),
        ("tied_embeddings", False, {"logits_bias": False}),
    )


@dataclasses.dataclass(frozen=True)
class TransformerLM(CachedDecoding):
    """The functions of the model; a `Model` has them.

    Attributes:
      causal: whether no token sees later ones.
    """

    config: TransformerLMConfig
    vocab_size: int
    decoder: Stack
    causal: bool = True

    def spec(self) -> Spec:
        """Returns the weights of the model."""
        config, unit_rows = self.config, self.config.tied_embeddings or self.config.scaled_embeddings
        return {
            "embedding": embedding_spec(config, self.vocab_size, unit_rows=unit_rows),
            "blocks": self.decoder.spec(),
            **({"norm": normalization_spec(config)} if config.final_norm else {}),
            **({"transform": transform_spec(config)} if config.head == "transform" else {}),
            **({} if config.tied_embeddings else {"final": final_layer_spec(config, self.vocab_size)}),
        }

    def features(self, params: Params, batch: Batch, *, rng: jax.Array | None = None) -> jax.Array:
        """Returns the residual stream after the last block, [B, T, D].

        `batch` has `inputs` [B, T]. It may have `input_mask` [B, T], which is false on padding; `positions` [B, T] of
        the tokens; `documents` [B, T], the index of each token's document, within which attention stays; `order`
        [B, T]: tokens see those whose order is not above their own; and, for a table of segments, `segments` [B, T].
        """
        rng_embedding, rng_blocks, rng_positions = split(rng, 3)
        places = places_of(self.config, batch, rng_positions, causal=self.causal)
        require_documents(self.decoder, batch)
        rest = {"segments_BT": batch.get("segments"), "rng": rng_embedding}
        x_BTD = self.embed(params, batch["inputs"], places.positions, **rest)
        x, context = self.decoder.start(x_BTD), Context(places, batch["inputs"], rng=rng_blocks)
        return self.decoder.finish(self.decoder.apply(self.of_decoder(params), x, context)[0])

    def of_decoder(self, params: Params) -> Params:
        return params["blocks"]

    def embed(self, params: Params, tokens_RT: jax.Array, positions_RT: jax.Array, **rest: Any) -> jax.Array:
        """Returns the vectors of tokens, [R, T, D]; `rest` as in `embedding`."""
        scaled = self.config.scaled_embeddings
        return embedding(self.config, params["embedding"], tokens_RT, positions_RT, scaled=scaled, **rest)

    def readout(self, params: Params, x: jax.Array) -> jax.Array:
        """Returns the logits [..., V] of the residual stream [..., D]."""
        config = self.config
        x = normalize(config, params["norm"], x) if config.final_norm else x
        x = transform(config, params["transform"], x) if config.head == "transform" else x
        return final_layer(config, params["embedding" if config.tied_embeddings else "final"], x)


def transformer_lm(config: TransformerLMConfig, vocab_size: int, kind: type[TransformerLM] = TransformerLM) -> Model:
    """Builds the model; tokens are 0 … vocab_size - 1. A subclass may stand in its place."""
    model = kind(config, vocab_size, stack_of(config, vocab_size=vocab_size))
    decoding = model if model.decoder.cached else WholeSequences(model.features, model.readout)
    spec = initialized_as(config, model.spec())
    sizes = sizes_of(config, model.decoder)
    return Model(spec, model.features, model.readout, decoding.prefill, decoding.step, **sizes)


@dataclasses.dataclass(frozen=True)
class MaskedLMConfig(TransformerLMConfig):
    """The `model` section for `masked_lm`."""

    name: Literal["masked_lm"] = key("masked_lm", "the model to build")  # type: ignore[assignment]
    segments: int = key(0, "number of segments, each with a trained vector for its tokens; 0: none", minimum=0)


def masked_lm(config: MaskedLMConfig, vocab_size: int) -> Model:
    """Builds the model, which is transformer_lm without the causal mask. It does not generate.

    A batch has `inputs` [B, T]. It may have `input_mask` [B, T], false on padding; `positions` [B, T]; and, with
    `config.segments`, `segments` [B, T], the segment of each token, 0 by default.
    """
    model = TransformerLM(config, vocab_size, stack_of(config, vocab_size=vocab_size), causal=False)
    spec = model.spec()
    if config.segments:
        spec["embedding"]["segments"] = Weight((config.segments, config.d_model), ("segment", "embed"), random_rows)
    return Model(initialized_as(config, spec), model.features, model.readout, **sizes_of(config, model.decoder))
