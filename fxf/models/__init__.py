"""Models by name: the section class that configures each, and the function that builds it."""

from fxf.config import EncoderDecoderConfig, TransformerLMConfig
from fxf.models.encoder_decoder import encoder_decoder
from fxf.models.transformer_lm import transformer_lm

MODELS = {
    "transformer_lm": (TransformerLMConfig, transformer_lm),
    "encoder_decoder": (EncoderDecoderConfig, encoder_decoder),
}
