import ast

import jax
import jax.numpy as jnp
import numpy as np

from fxf.models import sampling
from fxf.models.decode_config import DecodeConfig
from fxf.models.sampling import restrict
from helpers import table

PROBABILITIES = np.array([0.1, 0.4, 0.05, 0.25, 0.2])
N = 5000


def test_tokens_are_drawn_with_their_probabilities_and_greedily_the_most_probable():
    cases = [({}, "[0, 1, 0, 0, 0]"), *table("probabilities of tokens")]

    @jax.jit
    def draw(logits, key):
        keys = jax.random.split(key, N)
        return [sampling.draw(DecodeConfig(**settings), logits, keys) for settings, _ in cases]

    drawn = draw(np.broadcast_to(np.log(PROBABILITIES).astype(np.float32), (N, 5)), jax.random.key(0))
    for (settings, expected), tokens in zip(cases, drawn, strict=True):
        shares = np.bincount(tokens, minlength=5) / N
        atol = 0.025 if settings else 0
        np.testing.assert_allclose(shares, ast.literal_eval(expected), rtol=0, atol=atol, err_msg=str(settings))


def test_the_fewest_tokens_that_have_top_p_also_have_no_more_where_they_have_it_exactly():
    logits = np.log(np.array([[0.5, 0.25, 0.125, 0.125]], np.float32))
    configs = [DecodeConfig(temperature=1.0, top_p=top_p) for top_p in (0.5, 0.75, 0.76)]
    kept = jax.jit(lambda logits: [jnp.isfinite(restrict(config, logits)).sum() for config in configs])(logits)
    assert list(map(int, kept)) == [1, 2, 4]
