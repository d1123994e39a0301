"""model.dtype=float64: logits, loss, steps and decoding equal the seeds' mathematics in NumPy float64 to 1e-12."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fxf
import oracle
from fxf.base.errors import UserError
from fxf.layers.config import TransformerConfig
from fxf.training.state import hyperparameters
from fxf.training.step import TrainConfig
from helpers import SIZES, VOCAB_SIZE, random_params, random_tokens, small, some

KEYS = {**SIZES, "init": "uniform", "dtype": "float64"}
TOKENS = random_tokens((3, 11))


def close(found, expected):
    assert np.asarray(found).dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def random_float64(model):
    return oracle.float64(random_params(model.spec))


def as_float64(params):
    assert all(leaf.dtype == np.float64 for leaf in jax.tree.leaves(params))
    return oracle.float64(params)


FORMS = [
    {"positions": "rotary", "attention": "expressive", "norm": "rms", "qk_norm": True, "head_dim": 4, "gated": True},
    {"attention": "linear", "feature_map": "none", "n_kv_heads": 1},  # of seed 002
]


@some("number", [0, 1], [0])
def test_decoding_with_a_cache_equals_the_oracle(number):
    form = FORMS[number]
    with jax.enable_x64(True):
        model = fxf.model("transformer_lm", vocab_size=VOCAB_SIZE, **{**KEYS, **form})
        drawn = jax.tree.leaves(jax.eval_shape(lambda: fxf.initialize(model)))
        assert {leaf.dtype for leaf in drawn} == {np.dtype("float64")}
        params = random_float64(model)
        expected = [oracle.transformer_lm(small(**form), as_float64(params), row) for row in TOKENS]
        close(jax.jit(model.apply)(params, {"inputs": TOKENS}), expected)
        prompts = {"inputs": TOKENS[:, :5], "lengths": jnp.full(3, 5, jnp.int32)}
        cache = jax.jit(model.prefill, static_argnums=2)(params, prompts, 11)
        step = jax.jit(model.step)
        for t in range(5, 11):
            logits, cache = step(params, cache, TOKENS[:, t])
            close(logits, np.stack(expected)[:, t])


@some("key", ["greedy", "beam_width", "draft"], ["greedy", "beam_width"])
def test_an_answer_is_that_of_the_full_forward_pass(key):
    with jax.enable_x64(True):
        model = fxf.model("transformer_lm", vocab_size=VOCAB_SIZE, **KEYS)
        params, prompts = jax.device_put(random_float64(model)), TOKENS[:, :5]
        keys = {"greedy": {}, "beam_width": {"beam_width": 2}, "draft": {"draft": (model, params)}}[key]
        n = 1 if key == "beam_width" else 3
        found = fxf.decode(model, params, prompts.tolist(), max_tokens=n, first_token=None, **keys)
        logits = jax.jit(model.apply)(params, {"inputs": np.concatenate([prompts, found], 1)})
        assert found == logits[:, 4:-1].argmax(-1).tolist()


def test_a_step_follows_the_gradient_of_the_oracles_loss():
    with jax.enable_x64(True):
        model = fxf.model("transformer_lm", vocab_size=VOCAB_SIZE, **KEYS)
        params = random_float64(model)
        sequences = TOKENS[:, :8]
        batch = fxf.language_model_batch(sequences)
        batch["weights"] = batch["weights"].astype(jnp.float32)  # as in tasks
        moved, losses = fxf.fit(model, lambda *_: batch, steps=1, params=params, optimizer="sgd", learning_rate=0.3)
        weights = as_float64(params)
        ones = np.ones(sequences.shape)
        close(losses, [oracle.loss(small(), weights, sequences, ones)])
        gradient = jax.tree.map(lambda old, new: (old - new) / 0.3, weights, as_float64(moved))

        def loss(h):
            return oracle.loss(small(), jax.tree.map(lambda w, g: w + h * g, weights, gradient), sequences, ones)

        # The slope along the gradient is its squared norm; the error of the quotient is of the fourth order.
        h = 1e-4
        slope = (8 * (loss(h) - loss(-h)) - (loss(2 * h) - loss(-2 * h))) / (12 * h)
        np.testing.assert_allclose(slope, sum(np.sum(g**2) for g in jax.tree.leaves(gradient)), rtol=1e-9)


def test_float64_needs_both_the_key_and_the_environment_variable():
    with pytest.raises(UserError, match=r"^model\.dtype: 'float64' needs the environment variable JAX_ENABLE_X64=1$"):
        TransformerConfig(dtype="float64")
    with jax.enable_x64(True), pytest.raises(UserError, match=r"^JAX_ENABLE_X64: training with it needs model\.dtype"):
        hyperparameters(0, TrainConfig())
