import jax
import jax.numpy as jnp
import numpy as np
import pytest

import oracle
from closeness import assert_close, largest_of
from fxf.base.errors import UserError
from fxf.base.operations import operations
from fxf.layers import linear_attention
from fxf.layers.named import intermediates
from fxf.layers.normalization import normalize, over_root_mean_square
from fxf.models.transformer_lm import MaskedLMConfig, TransformerLM, masked_lm, transformer_lm
from fxf.testing import assert_cached_equals_full
from fxf.training.gradient import batch_loss
from helpers import VOCAB_SIZE, loss_and_gradient, marked, random_params, random_tokens, small, small_model


def apply(model, params, tokens, **more):
    return np.asarray(jax.jit(model.apply)(params, {"inputs": tokens, **more}))


@pytest.mark.parametrize("keys", marked("choices of a language model"))
def test_logits_equal_the_oracle_whatever_the_config_chooses(keys, monkeypatch):
    monkeypatch.setattr(linear_attention, "CHUNK", 4)  # 11 tokens are 3 chunks, the last not full
    config, (model, params) = small(**keys), small_model(**keys)
    tokens, weights = random_tokens((3, 11)), oracle.float64(params)
    assert_close(apply(model, params, tokens), [oracle.transformer_lm(config, weights, row) for row in tokens])


def test_dropout_changes_logits_by_key_and_not_without_one():
    tokens = random_tokens((3, 11))
    model, params = small_model(dropout=0.5, scan_blocks=True)
    plain, _ = small_model(scan_blocks=True)
    drawn = jax.jit(lambda seed: model.apply(params, {"inputs": tokens}, rng=jax.random.key(seed)))
    assert not np.allclose(drawn(0), drawn(1))
    without_key, of_plain = (jax.make_jaxpr(each.apply)(params, {"inputs": tokens}) for each in (model, plain))
    assert str(without_key) == str(of_plain)


@pytest.mark.thorough  # every time latent attention decodes at positions with gaps, and test_searches.py with a window
@pytest.mark.parametrize("changes", marked("decoding with a cache"))
def test_prefill_and_cached_steps_give_the_logits_of_the_full_forward(changes):
    # With two blocks, what prompt tokens see reaches the logits.
    model, params = small_model(**{"n_layers": 2, "scan_blocks": True, **changes})
    assert_cached_equals_full(model, params, {"inputs": random_tokens((4, 11))}, capacities=[17], n_hypotheses=1)


def test_a_prompt_of_no_tokens_at_all_is_read():
    model, params = small_model()
    tokens = random_tokens((4, 11))
    nothing = {"inputs": tokens[:, :0], "lengths": np.zeros(4, np.int32)}
    logits, cache = jax.jit(lambda params: model.step(params, model.prefill(params, nothing, 11), tokens[:, 0]))(params)
    assert_close(logits, apply(model, params, tokens)[:, 0])
    np.testing.assert_array_equal(cache.lengths, [1] * 4)


def test_logits_of_a_masked_lm_equal_the_oracle_in_segment_0_by_default_also_of_one_hot_vectors():
    config = small(MaskedLMConfig, segments=3, embedding_norm=True, head="transform")
    model = masked_lm(config, VOCAB_SIZE)
    params, tokens, segments = random_params(model.spec), random_tokens((2, 5)), random_tokens((2, 5), 3, seed=1)
    segments[1] = 0
    logits, weights = apply(model, params, tokens, segments=segments), oracle.float64(params)
    for row, kinds, actual in zip(tokens, segments, logits, strict=True):
        assert_close(actual, oracle.transformer_lm(config, weights, row, oracle.to_all, segments=kinds))
    assert_close(apply(model, params, jax.nn.one_hot(tokens, tokens.max() + 1))[1], logits[1])
    with pytest.raises(UserError, match="segments: expected 0 … 2, the rows of the table, got 3"):
        model.apply(params, {"inputs": tokens, "segments": segments + 1})


def test_a_model_whose_rows_depend_on_each_other_is_not_split():
    class Comparing(TransformerLM):
        by_row = False

    widths = [transformer_lm(small(), 11, kind).width for kind in (TransformerLM, Comparing)]
    assert widths == [small().d_model, None]


# model.dtype=bfloat16: weights, their gradient, statistics and losses stay in float32; model.remat: same numbers.
BATCH = {"inputs": random_tokens((3, 11)), "targets": random_tokens((3, 11), seed=1), "weights": np.ones((3, 11), "f")}
KIND = {"qk_norm": True, "norm": "rms"}


def test_losses_and_gradients_are_float32_and_close_to_those_of_a_float32_computation():
    (exact, params), (rounded, _) = small_model(**KIND), small_model(**KIND, dtype="bfloat16")
    of_both = jax.jit(lambda params: [loss_and_gradient(model, params, BATCH) for model in (exact, rounded)])(params)
    (loss, weight, gradient), (loss_16, weight_16, gradient_16) = jax.device_get(of_both)
    assert {leaf.dtype for leaf in jax.tree.leaves((loss_16, weight_16, gradient_16))} == {jnp.dtype("float32")}
    assert weight_16 == weight and 1e-6 < abs(loss_16 / loss - 1) < 1e-2
    for a, b in zip(jax.tree.leaves(gradient_16), jax.tree.leaves(gradient), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=0.05 * np.abs(b).max() + 1e-2)


def test_the_residual_stream_is_bfloat16_and_the_weights_of_attention_are_causal_and_sum_to_one_in_float32():
    model, params = small_model(n_layers=2, dtype="bfloat16")
    found = intermediates(model.features, params, BATCH)
    blocks = {f"block_{i}/{name}" for i in range(2) for name in ("attention/weights", "attention/heads", "residual")}
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
    norm = jax.jit(lambda x: jnp.stack([normalize(config, params, x), over_root_mean_square(x, 0.1).astype(x.dtype)]))
    np.testing.assert_array_equal(norm(x), np.asarray(norm(x.astype(np.float32))).astype(jnp.bfloat16))


@pytest.mark.thorough
def test_recomputation_keeps_the_gradient_and_computes_more():
    def gradient(**changes):
        model, params = small_model(scan_blocks=True, dropout=0.3, **changes)
        compute = jax.jit(jax.grad(lambda p: batch_loss(model, p, BATCH, jax.random.key(0))[0]))
        return operations(compute.trace(params).jaxpr.jaxpr).flops, compute(params)

    (plain, expected), (recomputed, found) = gradient(), gradient(remat="full")
    assert_close(found, expected, largest=largest_of(expected))
    assert recomputed > plain
