"""model.dtype=bfloat16: weights, their gradient, statistics and losses stay in float32; model.remat: same numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from closeness import assert_close, largest_of
from fxf.base.operations import operations
from fxf.layers.named import intermediates
from fxf.layers.normalization import normalize
from fxf.training.gradient import batch_loss, loss_and_gradient
from helpers import random_tokens, small, small_model

BATCH = {"inputs": random_tokens((3, 11)), "targets": random_tokens((3, 11), seed=1), "weights": np.ones((3, 11), "f")}
KIND = {"qk_norm": True, "norm": "rms"}


def test_losses_and_gradients_are_float32_and_close_to_those_of_a_float32_computation():
    (exact, params), (rounded, _) = small_model(**KIND), small_model(**KIND, dtype="bfloat16")
    of_both = jax.jit(lambda params: [loss_and_gradient(model, params, BATCH) for model in (exact, rounded)])(params)
    (loss, weight, gradient), (loss_16, weight_16, gradient_16) = jax.device_get(of_both)
    assert {leaf.dtype for leaf in jax.tree.leaves((loss_16, weight_16, gradient_16))} == {jnp.dtype("float32")}
    assert weight_16 == weight
    assert 1e-6 < abs(loss_16 / loss - 1) < 1e-2
    for a, b in zip(jax.tree.leaves(gradient_16), jax.tree.leaves(gradient), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=0.05 * np.abs(b).max() + 1e-2)


def test_the_residual_stream_is_bfloat16_and_the_weights_of_attention_are_causal_and_sum_to_one_in_float32():
    model, params = small_model(n_layers=2, dtype="bfloat16")
    found = intermediates(model.features, params, BATCH)
    blocks = {f"block_{i}/{name}" for i in range(2) for name in ("attention/weights", "residual")}
    assert found.keys() == {"embedding/positions", "embedding/residual", *blocks}
    assert found["block_1/residual"].dtype == found["embedding/residual"].dtype == jnp.bfloat16
    weights_BHTT = np.asarray(found["block_1/attention/weights"])
    assert_close(weights_BHTT.sum(-1), np.ones((3, 3, 11)))
    assert not weights_BHTT[..., ~np.tri(11, dtype=bool)].any()
    assert jax.eval_shape(model.apply, params, BATCH).dtype == jnp.float32


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_norms_are_those_of_float32_rounded_once(norm):
    config = small(norm=norm)
    params = {name: np.linspace(*ends, 6, dtype=np.float32) for name, ends in (("scale", (0.5, 2)), ("bias", (-1, 1)))}
    x = (100 + np.random.default_rng(0).normal(size=(5, 6))).astype(jnp.bfloat16)
    norm = jax.jit(lambda x: normalize(config, params, x))
    np.testing.assert_array_equal(norm(x), np.asarray(norm(x.astype(np.float32))).astype(jnp.bfloat16))


@pytest.mark.thorough
def test_the_gradient_is_the_one_without_and_more_is_computed_for_it():
    def gradient(**changes):
        model, params = small_model(scan_blocks=True, dropout=0.3, **changes)
        compute = jax.jit(jax.grad(lambda p: batch_loss(model, p, BATCH, jax.random.key(0))[0]))
        return operations(compute.trace(params).jaxpr.jaxpr).flops, compute(params)

    (plain, expected), (recomputed, found) = gradient(), gradient(remat="full")
    assert_close(found, expected, largest=largest_of(expected))
    assert recomputed > plain
