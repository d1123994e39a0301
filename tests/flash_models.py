"""Models with flash attention and default ones, for tests of each kernel on a CPU."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fxf.models.encoder_decoder import EncoderDecoderConfig, encoder_decoder
from fxf.models.transformer_lm import MaskedLMConfig, TransformerLMConfig, masked_lm, transformer_lm
from helpers import loss_and_gradient, random_params, random_tokens

MODELS = {TransformerLMConfig: transformer_lm, MaskedLMConfig: masked_lm, EncoderDecoderConfig: encoder_decoder}
B, T, S = 3, 11, 7
# Which tokens of a source are not padding: different in each row, and not only the first ones.
IS_TOKEN = np.arange(S) % np.array([[1], [2], [5]]) == 0


def a_batch(config_class, length=T):
    batch = {"inputs": random_tokens((B, length)), "targets": random_tokens((B, length), seed=1)}
    batch["weights"] = np.ones((B, length), np.float32)
    if config_class is EncoderDecoderConfig:
        batch |= {"source": random_tokens((B, S), seed=2), "source_mask": IS_TOKEN}
    if config_class is MaskedLMConfig:
        batch["input_mask"] = np.arange(length) < np.array([[length], [5], [3]])
        batch["weights"] *= batch["input_mask"]
    return batch


def of_both(models, batch, compute=loss_and_gradient):
    """Returns loss, weight and gradient of models; models with equal specs have equal params."""
    learned = (jax.jit(lambda params, m=model: compute(m, params, batch, jax.random.key(0))) for model in models)
    return [jax.device_get(learn(random_params(model.spec))) for learn, model in zip(learned, models, strict=True)]


def with_gradients(read, *arrays):
    """Returns a function's output, and the gradients of a weighted sum of it with respect to each array."""

    def total(*arrays):
        y = read(*arrays)
        return (y * np.cos(np.arange(y.size)).reshape(y.shape).astype(y.dtype)).sum(), y

    return jax.jit(jax.grad(total, range(len(arrays)), has_aux=True))(*arrays)


def norm(tree):
    return np.sqrt(sum(np.square(leaf, dtype=np.float64).sum() for leaf in jax.tree.leaves(tree)))


def assert_close_in_bfloat16(expected, found):
    """Asserts that losses and gradients agree within bfloat16 precision."""
    assert found[0] == pytest.approx(float(expected[0]), rel=1e-2)
    assert norm(jax.tree.map(np.subtract, found[2], expected[2])) <= 0.05 * norm(expected[2])


def scores_of(scale, q_BTHK, k_BSGK, causal, window=0):
    q_BTGEK = q_BTHK.reshape(*q_BTHK.shape[:2], k_BSGK.shape[2], -1, q_BTHK.shape[-1])
    scores = scale * jnp.einsum("BTGEK,BSGK->BGETS", q_BTGEK, k_BSGK)
    queries, keys = np.arange(scores.shape[-2])[:, None], np.arange(scores.shape[-1])
    seen = ((queries >= keys) | (not causal)) & ((queries - keys < window) | (not window))
    return jnp.where(seen.reshape(1, 1, 1, *seen.shape), scores, -jnp.inf)


def part(scale, q_BTHK, k_BSGK, v_BSGK, causal, window=0):
    """Returns attention over some keys, and the log-sum-exp of scores, as cuDNN does."""
    scores = scores_of(scale, q_BTHK, k_BSGK, causal, window)
    read = jnp.einsum("BGETS,BSGK->BTGEK", jax.nn.softmax(scores), v_BSGK).reshape(q_BTHK.shape)
    return read, jax.nn.logsumexp(scores, -1).reshape(len(read), -1, read.shape[1]).swapaxes(1, 2)


def gradients_of_part(scale, q_BTHK, k_BSGK, v_BSGK, read, logarithms, of_read, causal, window=0):
    """Returns gradients by softmax's rule: weight · (gradient of the weight - its weighted mean)."""
    scores, back = jax.vjp(lambda q, k: scores_of(scale, q, k, causal, window), q_BTHK, k_BSGK)
    weights = jnp.exp(scores - logarithms.swapaxes(1, 2).reshape(*scores.shape[:-1], 1))
    of_read_BTGEK = of_read.reshape(*of_read.shape[:2], k_BSGK.shape[2], -1, of_read.shape[-1])
    of_weights = jnp.einsum("BTGEK,BSGK->BGETS", of_read_BTGEK, v_BSGK)
    mean = (read * of_read).sum(-1).swapaxes(1, 2).reshape(*scores.shape[:-1], 1)
    return *back(weights * (of_weights - mean)), jnp.einsum("BGETS,BTGEK->BSGK", weights, of_read_BTGEK)
