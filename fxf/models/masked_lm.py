"""An encoder that predicts the masked tokens of a sequence (seed 001, "Tokenization"; Devlin et al. 2018)."""

import dataclasses
from typing import Literal

from fxf.base.config import key
from fxf.base.weights import Weight
from fxf.layers.kinds import stack_of
from fxf.layers.position_kinds import random_rows
from fxf.models.init import initialized_as
from fxf.models.model import Model, sizes_of
from fxf.models.transformer_lm import TransformerLM, TransformerLMConfig


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
