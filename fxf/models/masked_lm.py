"""An encoder that predicts the masked tokens of a sequence (seed 001, "Tokenization"; Devlin et al. 2018)."""

import dataclasses
from typing import Literal

import jax

from fxf.config import key
from fxf.layers.position_kinds import random_rows
from fxf.layers.positions import position_penalty
from fxf.models.init import initialized_as
from fxf.models.model import Batch, Model, sizes_of
from fxf.models.transformer_lm import TransformerLMConfig, logits, transformer_lm_spec, whole_sequences
from fxf.weights import Params, Spec, Weight


@dataclasses.dataclass(frozen=True)
class MaskedLMConfig(TransformerLMConfig):
    """The `model` section for `masked_lm`."""

    name: Literal["masked_lm"] = key("masked_lm", "the model to build")  # type: ignore[assignment]
    segments: int = key(0, "number of segments, each with a trained vector for its tokens; 0: none", minimum=0)


def masked_lm_spec(config: MaskedLMConfig, vocab_size: int) -> Spec:
    """Returns the weights of the model."""
    spec = transformer_lm_spec(config, vocab_size)
    if config.segments:
        spec["embedding"]["segments"] = Weight((config.segments, config.d_model), ("segment", "embed"), random_rows)
    return initialized_as(config, spec)


def masked_lm(config: MaskedLMConfig, vocab_size: int) -> Model:
    """Builds the model, which is transformer_lm without the causal mask. It does not generate.

    A batch has `inputs` [B, T]. It may have `input_mask` [B, T], false on padding; `positions` [B, T]; and, with
    `config.segments`, `segments` [B, T], the segment of each token, 0 by default.
    """

    def features(params: Params, batch: Batch, *, rng: jax.Array | None = None) -> jax.Array:
        return whole_sequences(config, params, batch, rng, causal=False)

    def readout(params: Params, x: jax.Array) -> jax.Array:
        return logits(config, params, x)

    spec = masked_lm_spec(config, vocab_size)
    penalty = position_penalty(config, "embedding")
    return Model(spec, features, readout, penalty=penalty, **sizes_of(config))
