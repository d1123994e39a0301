"""Models by name: the section class that configures each, and the function that builds it."""

from fxf.config import TransformerConfig
from fxf.models.transformer_lm import transformer_lm

MODELS = {"transformer_lm": (TransformerConfig, transformer_lm)}
