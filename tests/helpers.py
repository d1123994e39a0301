"""Small models for tests."""

import dataclasses

import jax
import numpy as np

from fxf.config import TransformerConfig
from fxf.models.transformer_lm import transformer_lm
from fxf.weights import initialize, uniform_half, with_init

SMALL = TransformerConfig(n_layers=2, d_model=6, d_ff=11, n_heads=3, max_len=13)
VOCAB_SIZE = 7


def small(**changes):
    return dataclasses.replace(SMALL, **changes)


def random_params(spec, seed=0):
    """Every weight drawn at random, so that no zero bias or unit scale hides a mistake."""
    return jax.jit(lambda key: initialize(with_init(spec, uniform_half), key))(jax.random.key(seed))


def small_model(vocab_size=VOCAB_SIZE, seed=0, **changes):
    """Returns (model, params), all params random."""
    model = transformer_lm(small(**changes), vocab_size)
    return model, random_params(model.spec, seed)


def random_tokens(shape, vocab_size=VOCAB_SIZE, seed=0):
    return np.random.default_rng(seed).integers(0, vocab_size, shape).astype(np.int32)
