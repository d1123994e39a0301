import jax
import numpy as np

import oracle
from closeness import assert_close
from fxf.models.transformer_lm import MaskedLMConfig, masked_lm
from helpers import random_params, random_tokens, small

VOCAB_SIZE = 7


def to_all(t, s):
    return True


def test_logits_with_segments_equal_the_oracle():
    config = small(MaskedLMConfig, segments=3, embedding_norm=True, head="transform")
    model = masked_lm(config, VOCAB_SIZE)
    params = random_params(model.spec)
    tokens, segments = random_tokens((2, 5)), random_tokens((2, 5), vocab_size=3, seed=1)
    logits = np.asarray(jax.jit(model.apply)(params, {"inputs": tokens, "segments": segments}))
    weights = oracle.float64(params)
    for row, kinds, actual in zip(tokens, segments, logits, strict=True):
        expected = oracle.transformer_lm(config, weights, row, to_all, segments=kinds)
        assert_close(actual, expected)


def test_without_segments_in_the_batch_all_tokens_are_in_the_first():
    model = masked_lm(small(MaskedLMConfig, segments=2), VOCAB_SIZE)
    params, tokens = random_params(model.spec), random_tokens((2, 5))
    apply = jax.jit(model.apply)
    given = apply(params, {"inputs": tokens, "segments": np.zeros_like(tokens)})
    np.testing.assert_array_equal(apply(params, {"inputs": tokens}), given)


def test_in_a_window_padding_changes_no_logit():
    """Also where a window holds padding alone."""
    model = masked_lm(small(MaskedLMConfig, window=2), VOCAB_SIZE)
    params, tokens = random_params(model.spec), random_tokens((1, 7))
    mask = np.arange(7)[None] < 3
    expected = jax.jit(model.apply)(params, {"inputs": tokens[:, :3]})
    actual = np.asarray(jax.jit(model.apply)(params, {"inputs": tokens, "input_mask": mask}))
    assert_close(actual[:, :3], expected)
