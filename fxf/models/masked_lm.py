"""Encoder that predicts the tokens masked out of a sequence (seed 001, "Tokenization"; Devlin et al. 2018)."""

import jax

from fxf.config import MaskedLMConfig
from fxf.models.model import Batch, Model
from fxf.models.transformer_lm import logits, transformer_lm_spec, whole_sequences
from fxf.weights import Params


def masked_lm(config: MaskedLMConfig, vocab_size: int) -> Model:
    """Builds the model: that of transformer_lm, except that every token sees all; it does not generate.

    A batch holds `inputs` [B, T] and, where there is padding, `counts` [B, T], false on it.
    """

    def features(params: Params, batch: Batch, *, rng: jax.Array | None = None) -> jax.Array:
        return whole_sequences(config, params, batch, rng, causal=False)

    def readout(params: Params, x_BTD: jax.Array) -> jax.Array:
        return logits(config, params, x_BTD)

    return Model(transformer_lm_spec(config, vocab_size), features, readout)
