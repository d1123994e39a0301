"""Models by name: the class of each model's config section, and the function that builds the model."""

from collections.abc import Callable
from typing import Any, NamedTuple

from fxf.base.config import Choices
from fxf.models.encoder_decoder import EncoderDecoderConfig, encoder_decoder
from fxf.models.model import Model
from fxf.models.transformer_lm import MaskedLMConfig, TransformerLMConfig, masked_lm, transformer_lm


class RegisteredModel(NamedTuple):
    """The class of the `model` section, with the keys `name` and `max_len`, and `make(section, vocab_size) -> Model`.

    A run with data also calls `make` with another `vocab_size`, to find wrong keys before it prepares the data.
    The model fits the tasks that name it, and all tasks of the model that `in_place_of` names.
    """

    config: type
    make: Callable[[Any, int], Model]
    in_place_of: str = ""


MODELS: Choices[RegisteredModel] = Choices(
    {
        "transformer_lm": RegisteredModel(TransformerLMConfig, transformer_lm),
        "masked_lm": RegisteredModel(MaskedLMConfig, masked_lm),
        "encoder_decoder": RegisteredModel(EncoderDecoderConfig, encoder_decoder),
    }
)
