import jax
import numpy as np
import pytest

import oracle
from closeness import assert_close
from fxf.layers import linear_attention
from fxf.models.transformer_lm import MaskedLMConfig, TransformerLM, masked_lm, transformer_lm
from fxf.testing import assert_cached_equals_full
from helpers import VOCAB_SIZE, marked, random_params, random_tokens, small, small_model


def apply(model, params, tokens, **more):
    return np.asarray(jax.jit(model.apply)(params, {"inputs": tokens, **more}))


@pytest.mark.parametrize("keys", marked("choices of a language model"))
def test_logits_equal_the_oracle_whatever_the_config_chooses(keys, monkeypatch):
    monkeypatch.setattr(linear_attention, "CHUNK", 4)  # 11 tokens are 3 chunks, of which the last is not full
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
@pytest.mark.parametrize(
    "changes",
    [
        {"attention": "expressive"},
        {
            **{"position_range": 41, "position_gap": 3, "positions": "rotary", "qk_norm": True},
            **{"block": "post_norm", "final_norm": False, "scan_blocks": False},
        },
        {"attention": "linear", "feature_map": "none", "n_kv_heads": 1},
    ],
)
def test_prefill_and_cached_steps_give_the_logits_of_the_full_forward(changes):
    # What the tokens of a prompt see reaches a logit through the second block.
    model, params = small_model(**{"n_layers": 2, "scan_blocks": True, **changes})
    tokens = {"inputs": random_tokens((4, 11))}
    assert_cached_equals_full(model, params, tokens, capacities=[17], n_hypotheses=1)


def test_a_prompt_of_no_tokens_at_all_is_read():
    model, params = small_model()
    tokens = random_tokens((4, 11))
    nothing = {"inputs": tokens[:, :0], "lengths": np.zeros(4, np.int32)}
    read = jax.jit(lambda params: model.step(params, model.prefill(params, nothing, 11), tokens[:, 0]))
    logits, cache = read(params)
    assert_close(logits, apply(model, params, tokens)[:, 0])
    np.testing.assert_array_equal(cache.lengths, [1] * 4)


def test_logits_of_a_masked_lm_equal_the_oracle_and_segments_are_0_where_none_are_given():
    config = small(MaskedLMConfig, segments=3, embedding_norm=True, head="transform")
    model = masked_lm(config, VOCAB_SIZE)
    params, tokens, segments = random_params(model.spec), random_tokens((2, 5)), random_tokens((2, 5), 3, seed=1)
    segments[1] = 0
    logits, weights = apply(model, params, tokens, segments=segments), oracle.float64(params)
    for row, kinds, actual in zip(tokens, segments, logits, strict=True):
        assert_close(actual, oracle.transformer_lm(config, weights, row, oracle.to_all, segments=kinds))
    assert_close(apply(model, params, tokens)[1], logits[1])


def test_a_model_whose_rows_depend_on_each_other_is_not_cut_into_parts():
    class Comparing(TransformerLM):
        by_row = False

    widths = [transformer_lm(small(), 11, kind).width for kind in (TransformerLM, Comparing)]
    assert widths == [small().d_model, None]
