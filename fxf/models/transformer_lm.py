"""TransformerLM (seed 004, "Definition of TransformerLM"): final ∘ N ∘ DB_n ∘ … ∘ DB_1 ∘ PE ∘ Em.

And an encoder of the same layers that predicts masked tokens (seed 001, "Tokenization"; Devlin et al. 2018).
"""

import dataclasses
import functools
from contextlib import nullcontext
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp

from fxf.base.config import key, one_of
from fxf.base.weights import Params, Spec, Weight
from fxf.layers.block import Stack, layers_of, require_documents
from fxf.layers.cache import Cache
from fxf.layers.config import TransformerConfig
from fxf.layers.dropout import split
from fxf.layers.embedding import embedding, embedding_spec, final_layer, final_layer_spec, transform, transform_spec
from fxf.layers.kinds import stack_of
from fxf.layers.layer import Context, Places
from fxf.layers.normalization import normalization_spec, normalize
from fxf.layers.positions import POSITIONS, places_of, random_rows, require_room, token_positions
from fxf.models.init import initialized_as
from fxf.models.model import Batch, Model, WholeSequences, carried

Source = tuple[jax.Array, Places]  # the output of an encoder, and its places


@dataclasses.dataclass(frozen=True)
class TransformerLMConfig(TransformerConfig):
    """The `model` section for `transformer_lm`."""

    name: Literal["transformer_lm"] = key("transformer_lm", "the model to build")
    tied_embeddings: bool = key(
        False,
        "read logits from the embedding table, whose rows then start with length 1; sinusoids have length √(d_model / "
        "2), so set scaled_embeddings with them",
    )
    scaled_embeddings: bool = key(False, "multiply embeddings of tokens by √d_model")
    head: Literal["linear", "transform"] = key("linear", "logits by a linear map, or a dense layer before it (BERT)")


@dataclasses.dataclass(frozen=True)
class TransformerLM:
    """The functions of the model; a `Model` has them.

    Attributes:
      decoder: the blocks, which decoding runs token by token.
      causal: whether no token sees later ones.
      by_row: whether rows of a batch are independent in what a subclass adds, in terms of the objective too.
    """

    config: TransformerLMConfig
    vocab_size: int
    decoder: Stack
    causal: ClassVar[bool] = True
    by_row: ClassVar[bool] = True
    scope: ClassVar[Any] = nullcontext  # of the names of the decoder's arrays

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

        `batch` has `inputs`: tokens [B, T], or vectors [B, T, F] in their place (see `embedding`). It may have
        `input_mask` [B, T], which is false on padding; `positions` [B, T]; `documents` [B, T], the index of each
        token's document, within which attention stays; `order` [B, T]: tokens see those whose order is not above their
        own; and, for a table of segments, `segments` [B, T]. Arrays `carry/NAME` are the initial carry of the context,
        for layers that read them by NAME. `source` reads other arrays.
        """
        rng_source, rng_embedding, rng_blocks, rng_positions = self.keys(rng)
        require_documents(self.decoder, batch)
        source = self.source(params, batch, rng_source)
        with self.scope():
            places = places_of(self.config, batch, rng_positions, causal=self.causal)
            rest = {"segments_BT": batch.get("segments"), "rng": rng_embedding}
            x_BTD = self.embed(params, batch["inputs"], places.positions, **rest)
            context = Context(places, batch["inputs"], carry=carried(batch), source=source, rng=rng_blocks)
            x, _ = self.decoder.apply(self.of_decoder(params), self.decoder.start(x_BTD), context)
            return self.decoder.finish(x)

    def keys(self, rng: jax.Array | None) -> list[jax.Array | None]:
        """Returns the random keys of the source, the embedding, the blocks and the positions."""
        return [None, *split(rng, 3)]

    def of_decoder(self, params: Params) -> Params:
        """Returns the weights of the decoder's blocks."""
        return params["blocks"]

    def embed(self, params: Params, tokens_RT: jax.Array, positions_RT: jax.Array, **rest: Any) -> jax.Array:
        """Returns the vectors of the decoder's tokens, [R, T, D]; `rest` as in `embedding`."""
        scaled = self.config.scaled_embeddings
        return embedding(self.config, params["embedding"], tokens_RT, positions_RT, scaled=scaled, **rest)

    def source(self, params: Params, batch: Batch, rng: jax.Array | None = None) -> Source | None:
        """Returns the source that cross-attention reads; None if there is none."""
        return None

    def readout(self, params: Params, x: jax.Array) -> jax.Array:
        """Returns the logits [..., V] of the residual stream [..., D]."""
        config = self.config
        x = normalize(config, params["norm"], x) if config.final_norm else x
        x = transform(config, params["transform"], x) if config.head == "transform" else x
        return final_layer(config, params["embedding" if config.tied_embeddings else "final"], x)

    def prefill(self, params: Params, batch: Batch, length: int) -> Cache:
        """Returns the cache after the prompts, with room for `length` tokens in each row."""
        tokens_BT, lengths_B, given = batch["inputs"], batch["lengths"], batch.get("positions")
        if given is None:
            require_room(self.config, tokens_BT.shape[1])
        else:  # as many as the cache has slots; no query reads the padded positions
            given = jnp.pad(given, ((0, 0), (0, max(length - given.shape[1], 0))), "edge")
        if not tokens_BT.size:  # empty prompts are padding
            tokens_BT = jnp.zeros((tokens_BT.shape[0], 1), tokens_BT.dtype)
        indices_1T = jnp.arange(tokens_BT.shape[1])[None]
        documents_BT = (indices_1T < lengths_B[:, None]).astype(jnp.int32)
        places = Places(token_positions(self.config, indices_1T, given), indices_1T, documents_BT)
        context = Context(places, tokens_BT, cache={}, source=self.source(params, batch))
        with self.scope():
            x = self.decoder.start(self.embed(params, tokens_BT, places.positions))
            _, context = self.decoder.apply(self.of_decoder(params), x, context)
        return Cache(context.cache, lengths_B, given).with_slots(max(length, tokens_BT.shape[1]))

    def step(self, params: Params, cache: Cache, tokens: jax.Array) -> tuple[jax.Array, Cache]:
        """Returns the logits after each new token of each row, and the cache with the new tokens.

        Args:
          tokens: one of each row, int32 [R], with logits [R, V]; or several, [R, T], with logits [R, T, V].
        """
        tokens_RT, n_new = tokens.reshape(len(tokens), -1), tokens.size // len(tokens)
        indices_RT = cache.lengths[:, None] + jnp.arange(n_new)[None]
        positions_of = functools.partial(token_positions, self.config)
        positions_RT = positions_of(indices_RT, cache.given)
        places = Places(positions_RT, indices_RT, jnp.ones_like(indices_RT))
        table = cache.table(positions_of, n_new)
        context = Context(places, tokens_RT, cache.layers, table)
        with self.scope():
            x = self.decoder.start(self.embed(params, tokens_RT, positions_RT))
            x, context = self.decoder.apply(self.of_decoder(params), x, context)
        cache = cache.replace(layers=context.cache, lengths=cache.lengths + n_new)
        if table is not None:
            order_BC = None if table.reads_BWC is None else table.places.order
            cache = cache.replace(order_BC=order_BC, reads_BWC=table.reads_BWC)
        return self.readout(params, self.decoder.finish(x).reshape(*tokens.shape, -1)), cache

    def model(self, *encoders: Stack) -> Model:
        """Returns the `Model` with these functions; `encoders` are its other stacks of blocks."""
        config, stacks = self.config, (*encoders, self.decoder)
        positions = POSITIONS[one_of(config.positions, POSITIONS, "model.positions")]
        decoding = self if self.decoder.cached else WholeSequences(self.features, self.readout)
        parts = [self, *(layer for stack in stacks for layer in layers_of(stack))]
        by_row = all(getattr(part, "by_row", True) for part in parts)
        # A rolling cache needs positions that act by distance only, and so add nothing to the embeddings.
        by_distance = not (positions.embed or positions.table or config.position_range)
        return Model(
            initialized_as(config, self.spec()),
            self.features,
            self.readout,
            decoding.prefill,
            decoding.step,
            max_len=config.max_len,
            rolls=by_distance and all(stack.cached for stack in stacks),
            dtype=config.dtype,
            width=config.d_model if by_row else None,
        )


def transformer_lm(config: TransformerLMConfig, vocab_size: int, kind: type[TransformerLM] = TransformerLM) -> Model:
    """Builds the model; tokens are 0 … vocab_size - 1. `kind` may be a subclass."""
    return kind(config, vocab_size, stack_of(config, vocab_size=vocab_size)).model()


@dataclasses.dataclass(frozen=True)
class MaskedLMConfig(TransformerLMConfig):
    """The `model` section for `masked_lm`."""

    name: Literal["masked_lm"] = key("masked_lm", "the model to build")  # type: ignore[assignment]
    segments: int = key(0, "number of segments, each with a trained vector for its tokens; 0: none", minimum=0)


class MaskedLM(TransformerLM):
    """The functions of transformer_lm without the causal mask, and with a table of segments if the config has some."""

    config: MaskedLMConfig
    causal = False

    def spec(self) -> Spec:
        spec, config = super().spec(), self.config
        if config.segments:
            spec["embedding"]["segments"] = Weight((config.segments, config.d_model), ("segment", "embed"), random_rows)
        return spec


def masked_lm(config: MaskedLMConfig, vocab_size: int) -> Model:
    """Builds the model, which does not generate.

    A batch has `inputs` [B, T]. It may have `input_mask` [B, T], false on padding; `positions` [B, T]; and, with
    `config.segments`, `segments` [B, T], the segment of each token, 0 by default.
    """
    return transformer_lm(config, vocab_size, MaskedLM)._replace(prefill=None, step=None)
