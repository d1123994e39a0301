"""Each of these tests detects a small fault that no other test detected."""

import jax
import numpy as np
import pytest

import fxf
from closeness import assert_close, largest_of
from fxf.data.tokenizer import train_tokenizer
from fxf.layers.normalization import normalization_spec, normalize
from helpers import VOCAB_SIZE, loss_and_gradient, random_params, random_tokens, small


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("epsilon_in", ["variance", "deviation"])
def test_the_derivative_of_a_norm_equals_finite_differences(norm, epsilon_in):
    """This includes the direction in which the mean of a row changes."""
    config = small(norm=norm, norm_epsilon_in=epsilon_in, norm_epsilon=0.1)
    with jax.enable_x64(True):
        params = jax.tree.map(lambda w: np.asarray(w, np.float64), random_params(normalization_spec(config)))
        x, h = np.random.default_rng(0).normal(size=6), 1e-5

        @jax.jit
        def of_rows(rows):
            return normalize(config, params, rows)

        jacobian = jax.jit(jax.jacrev(lambda x: normalize(config, params, x[None])[0]))(x)
        steps = h * np.eye(6)
        differences = (of_rows(x + steps) - of_rows(x - steps)).T / (2 * h)
    np.testing.assert_allclose(jacobian, differences, rtol=0, atol=1e-9)


def test_a_continuation_begins_where_the_text_ends_by_its_tokens():
    """Counting the text's characters would be wrong: a tokenizer of words keeps one space between words."""
    tokenizer = train_tokenizer("word", 9, ["the cat sees the dog"])
    assert tokenizer.continuation("the   cat", tokenizer.encode("sees")) == " sees"


def test_a_row_without_tokens_and_weight_changes_no_loss():
    sizes = {"n_layers": 1, "d_model": 6, "d_ff": 7, "n_heads": 2, "max_len": 5, "positions": "learned"}
    model, tokens = fxf.model("masked_lm", vocab_size=VOCAB_SIZE, **sizes), random_tokens((2, 5))
    mask = np.array([[True] * 5, [False] * 5])
    batch = {"inputs": tokens, "input_mask": mask, "targets": tokens, "weights": mask.astype(np.float32)}
    params, one = random_params(model.spec), {name: value[:1] for name, value in batch.items()}
    both = jax.jit(lambda params: [loss_and_gradient(model, params, each) for each in (batch, one)])(params)
    assert_close(*both, largest=largest_of(both))
