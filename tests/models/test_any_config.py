"""What holds for a model of any config, on configs drawn at random; every time other tests have it of chosen ones."""

import functools

import jax
import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from closeness import assert_close, largest_of
from fxf.base.errors import UserError
from fxf.layers.block import BLOCKS
from fxf.layers.feed_forward import ACTIVATIONS
from fxf.layers.kinds import ATTENTIONS
from fxf.layers.positions import POSITIONS
from fxf.models.encoder_decoder import EncoderDecoderConfig, encoder_decoder
from fxf.models.transformer_lm import TransformerLMConfig, transformer_lm
from fxf.testing import assert_cached_equals_full
from fxf.training.gradient import loss_and_gradient
from helpers import examples, random_params, random_tokens

pytestmark = pytest.mark.thorough
VOCAB_SIZE, ROWS, LENGTH = 7, 4, 9
KEYS = {
    "n_layers": [1, 2],
    "d_ff": [1, 5, 8],
    "block": list(BLOCKS),
    "norm": ["layer", "rms"],
    "norm_epsilon_in": ["deviation", "variance"],
    "final_norm": [False, True],
    "embedding_norm": [False, True],
    "positions": list(POSITIONS),
    "attention": list(ATTENTIONS),
    "window": [0, 1, 3],
    "head_dim": [0, 4],
    "global_every": [0, 0, 2],
    "zero_centered_scale": [False, True],
    "attention_softcap": [0.0, 2.0],
    "qk_norm": [False, True],
    "attention_bias": ["output", "all", "qkv", "none"],
    "activation": list(ACTIVATIONS),
    "gated": [False, True],
    "logit_softcap": [0.0, 2.0],
    "scan_blocks": [False, True],
}
KEYS_OF = {
    TransformerLMConfig: {"tied_embeddings": [False, True], "head": ["linear", "transform"]},
    EncoderDecoderConfig: {"embeddings": ["separate", "shared"], "cross_norm": ["queries", "source"]},
}
SIZES = [(1, 0, 6), (2, 0, 8), (2, 1, 12), (3, 0, 6), (3, 1, 12)]  # heads, of keys and values, width


@st.composite
def models(draw):
    """Draws a model and params; a large epsilon keeps a norm from making much of rounding."""
    config_class = draw(st.sampled_from(list(KEYS_OF)))
    changes = {key: draw(st.sampled_from(values)) for key, values in (KEYS | KEYS_OF[config_class]).items()}
    n_heads, n_kv_heads, d_model = draw(st.sampled_from(SIZES))
    sizes = {"n_heads": n_heads, "n_kv_heads": n_kv_heads, "d_model": d_model, "max_len": LENGTH}
    make = transformer_lm if config_class is TransformerLMConfig else encoder_decoder
    try:
        model = make(config_class(**changes, **sizes, norm_epsilon=0.1), VOCAB_SIZE)
    except UserError:  # choices that exclude each other
        reject()
    return model, random_params(model.spec, draw(st.integers(0, 999)))


def batch_of(seed):
    """Returns a batch for either model."""
    inputs, source = random_tokens((2, ROWS, LENGTH), VOCAB_SIZE, seed)
    source_mask = np.arange(LENGTH)[None] < np.array([[9], [1], [4], [3]])
    return {"inputs": inputs, "source": source, "source_mask": source_mask}


@examples(6)
@given(models(), st.integers(0, 999))
def test_decoding_with_a_cache_gives_the_logits_of_the_full_forward(model_and_params, seed):
    assert_cached_equals_full(*model_and_params, batch_of(seed), capacities=[LENGTH + 4], n_hypotheses=2)


@examples(6)
@given(models(), st.integers(0, 999))
def test_sums_over_two_halves_of_a_batch_are_those_of_the_whole(model_and_params, seed):
    model, params = model_and_params
    rng = np.random.default_rng(seed)
    batch = {
        **batch_of(seed),
        "targets": rng.integers(0, VOCAB_SIZE, (ROWS, LENGTH)).astype(np.int32),
        "weights": (rng.uniform(size=(ROWS, LENGTH)) * rng.integers(0, 2, (ROWS, 1))).astype(np.float32),
    }
    whole, halves = (
        jax.jit(functools.partial(loss_and_gradient, model, microbatches=n))(params, batch) for n in (1, 2)
    )
    assert_close(halves, whole, largest=max(1, largest_of(whole)))
