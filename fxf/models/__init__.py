"""Models by name: the section class that configures each, and the function that builds it."""

from collections.abc import Callable
from typing import Any

from fxf.models.bilayer import BilayerConfig, bilayer
from fxf.models.encoder_decoder import EncoderDecoderConfig, encoder_decoder
from fxf.models.masked_lm import MaskedLMConfig, masked_lm
from fxf.models.model import Model
from fxf.models.transformer_lm import TransformerLMConfig, transformer_lm

MODELS: dict[str, tuple[type, Callable[[Any, int], Model]]] = {
    "transformer_lm": (TransformerLMConfig, transformer_lm),
    "masked_lm": (MaskedLMConfig, masked_lm),
    "encoder_decoder": (EncoderDecoderConfig, encoder_decoder),
    "bilayer": (BilayerConfig, bilayer),
}
