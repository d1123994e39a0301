import ast
from functools import cache, partial

import jax
import numpy as np
import pytest

from fxf.models import sampling
from fxf.models.decode_config import DecodeConfig
from fxf.models.sampling import restrict
from helpers import table

PROBABILITIES = np.array([0.1, 0.4, 0.05, 0.25, 0.2])
N = 5000


def draw(**settings):
    """Returns the share of each token over N draws."""
    logits = np.broadcast_to(np.log(PROBABILITIES).astype(np.float32), (N, 5))
    return np.bincount(jax.jit(partial(sampling.draw, DecodeConfig(**settings)))(logits, keys(N)), minlength=5) / N


@cache
def keys(n):
    return jax.jit(lambda: jax.random.split(jax.random.key(0), n))()


def test_greedy_takes_the_most_probable_token():
    np.testing.assert_array_equal(draw(), [0, 1, 0, 0, 0])


@pytest.mark.parametrize(("settings", "expected"), table("probabilities of tokens"))
def test_tokens_are_drawn_with_their_probabilities(settings, expected):
    np.testing.assert_allclose(draw(**settings), ast.literal_eval(expected), atol=0.025)


def test_the_fewest_tokens_that_have_top_p_also_have_no_more_where_they_have_it_exactly():
    logits = np.log(np.array([[0.5, 0.25, 0.125, 0.125]], np.float32))
    for top_p, n in [(0.5, 1), (0.75, 2), (0.76, 4)]:
        kept = np.isfinite(jax.jit(partial(restrict, DecodeConfig(temperature=1.0, top_p=top_p)))(logits))
        assert kept.sum() == n
