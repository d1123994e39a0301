import jax
import jax.numpy as jnp
import numpy as np
import pytest

import oracle
from closeness import assert_close
from fxf.models.transformer_lm import MaskedLMConfig, TransformerLM, masked_lm, transformer_lm
from fxf.testing import assert_cached_equals_full
from helpers import VOCAB_SIZE, random_params, random_tokens, small, small_model


def inputs(tokens):
    return {"inputs": tokens}


def apply(model, params, tokens, rng=None):
    return np.asarray(jax.jit(model.apply)(params, inputs(tokens), rng=rng))


def assert_equal_to_the_oracle(model, params, tokens, **changes):
    expected = np.stack([oracle.transformer_lm(small(**changes), oracle.float64(params), row) for row in tokens])
    assert_close(apply(model, params, tokens), expected)


# Each seed's choices together, and what they leave out, several at a time. Large epsilons show where they are added.
CHOICES = {
    "two blocks": {"n_layers": 2},
    "idea": {"n_layers": 2, "block": "idea"},
    "seed 003": {"block": "post_norm", "final_norm": False, "norm_epsilon": 1e-5, "norm_epsilon_in": "variance",
                 "positions": "sinusoidal", "attention_bias": "none"},
    "seed 000": {"activation": "gelu", "final_norm": False, "norm_epsilon": 1e-4, "norm_epsilon_in": "variance",
                 "positions": "learned", "attention_bias": "all"},
    "seed 000, other positions": {"positions": "sinusoidal_concatenated", "attention_bias": "all", "n_kv_heads": 1},
    "epsilon in the deviation": {"norm_epsilon": 0.1, "tied_embeddings": True, "embedding_norm": True},
    "epsilon in the variance": {"norm_epsilon": 0.1, "norm_epsilon_in": "variance", "tied_embeddings": True,
                                "logits_bias": True, "positions": "sinusoidal_halves"},
    "rms": {"norm": "rms", "norm_epsilon": 0.1, "gated": True, "activation": "silu", "logit_softcap": 0.5},
    "rms, epsilon in the variance": {"norm": "rms", "norm_epsilon": 0.1, "norm_epsilon_in": "variance",
                                     "head": "transform", "activation": "gelu"},
    "transform, tied": {"head": "transform", "tied_embeddings": True, "final_norm": False, "qk_norm": True,
                        "norm_epsilon": 0.1},
    "groups of heads": {"n_heads": 6, "d_model": 12, "n_kv_heads": 2, "attention_bias": "all", "window": 3},
    "groups of heads, linear": {"n_heads": 6, "d_model": 12, "n_kv_heads": 2, "attention": "linear"},
    "linear, relu": {"attention": "linear", "feature_map": "relu", "positions": "none"},
    "linear, exp": {"attention": "linear", "feature_map": "exp"},
    "expressive": {"attention": "expressive", "positions": "none"},
    "rotary": {"positions": "rotary", "d_model": 12},
    "rotary, spread": {"positions": "rotary", "position_range": 41, "position_gap": 3},
    "alibi, geometric": {"positions": "alibi_geometric", "head_dim": 5, "n_kv_heads": 1, "attention_bias": "qkv"},
    "alibi, expressive": {"positions": "alibi", "attention": "expressive"},
    "no bias": {"attention_bias": "none", "feed_forward_bias": False, "final_bias": False, "gated": True,
                "positions": "alibi"},
    "soft caps": {"attention_softcap": 0.3, "logit_softcap": 0.5, "query_scale": 3.0, "positions": "learned",
                  "position_range": 41, "position_gap": 2},
    "1 + scale": {"zero_centered_scale": True, "qk_norm": True, "norm": "rms", "norm_epsilon": 0.1},
    "scaled embeddings": {"scaled_embeddings": True, "tied_embeddings": True, "block": "sandwich"},
    "global and local": {"n_layers": 2, "window": 2, "global_every": 2},
    "global and local, rotary": {"n_layers": 3, "window": 2, "global_every": 2, "positions": "rotary", "head_dim": 4,
                                 "local_rope_theta": 9.0, "rope_theta": 50.0, "rope_factor": 4.0,
                                 "rope_trained_len": 13, "scan_blocks": True},
}  # fmt: skip


# Each key that they change is changed by another choice too.
REPEATED = ("seed 000, other positions", "rms, epsilon in the variance", "groups of heads, linear", "linear, exp",
            "rotary", "alibi, geometric", "alibi, expressive", "global and local")  # fmt: skip


@pytest.mark.parametrize(
    "choices", [pytest.param(each, marks=pytest.mark.thorough) if each in REPEATED else each for each in CHOICES]
)
def test_logits_equal_the_oracle_whatever_the_config_chooses(choices):
    model, params = small_model(**CHOICES[choices])
    assert_equal_to_the_oracle(model, params, random_tokens((3, 11)), **CHOICES[choices])


@pytest.mark.parametrize(("block", "scan_blocks"), [("pre_norm", True), ("idea", False)])
def test_no_logit_depends_on_a_later_token(block, scan_blocks):
    """By gradient: the derivative of a position's logits by a later embedding is exactly zero, and by no other."""
    length = 7
    model, params = small_model(n_layers=2, block=block, scan_blocks=scan_blocks, max_len=length, vocab_size=length)
    tokens = np.arange(length)[None]  # token t stands at position t only, so its row shows who read it

    def logits_at(table, position):
        changed = {**params, "embedding": {**params["embedding"], "table": table}}
        return (model.apply(changed, inputs(tokens))[0, position] * jnp.arange(1.0, length + 1)).sum()

    gradients = jax.jit(jax.vmap(jax.grad(logits_at), (None, 0)))(params["embedding"]["table"], np.arange(length))
    np.testing.assert_array_equal(np.abs(gradients).sum(-1) > 0, np.tri(length, dtype=bool))


@pytest.mark.parametrize(("rate", "scan_blocks"), [("dropout", True), ("attention_dropout", False)])
def test_dropout_changes_logits_by_key_and_not_without_one(rate, scan_blocks):
    tokens = random_tokens((3, 11))
    model, params = small_model(**{rate: 0.5}, scan_blocks=scan_blocks)
    plain, _ = small_model(scan_blocks=scan_blocks)
    drawn = jax.jit(lambda seed: model.apply(params, inputs(tokens), rng=jax.random.key(seed)))
    assert not np.allclose(drawn(0), drawn(1))
    np.testing.assert_array_equal(drawn(0), drawn(0))
    without_key, of_plain = (jax.jit(each.apply).lower(params, inputs(tokens)).as_text() for each in (model, plain))
    assert without_key == of_plain


# Each kind of positions is in tests/layers/test_positions.py, and linear attention; tests/models/test_searches.py has a
# window.
@pytest.mark.parametrize(
    "changes",
    [
        {"attention": "expressive"},
        {
            **{"position_range": 41, "position_gap": 3, "positions": "rotary", "qk_norm": True},
            **{"block": "post_norm", "final_norm": False, "scan_blocks": False},
        },
        pytest.param({"attention": "linear", "feature_map": "none", "n_kv_heads": 1}, marks=pytest.mark.thorough),
    ],
)
def test_prefill_and_cached_steps_give_the_logits_of_the_full_forward(changes):
    # What the tokens of a prompt see reaches a logit through the second block.
    model, params = small_model(**{"n_layers": 2, "scan_blocks": True, **changes})
    assert_cached_equals_full(model, params, inputs(random_tokens((4, 11))), capacities=[17], n_hypotheses=1)


def test_a_prompt_of_no_tokens_at_all_is_read():
    model, params = small_model()
    tokens = random_tokens((4, 11))
    nothing = {"inputs": tokens[:, :0], "lengths": np.zeros(4, np.int32)}
    cache = jax.jit(model.prefill, static_argnums=2)(params, nothing, 11)
    logits, cache = jax.jit(model.step)(params, cache, tokens[:, 0])
    assert_close(logits, apply(model, params, tokens)[:, 0])
    np.testing.assert_array_equal(cache.lengths, [1] * 4)


def test_logits_of_a_masked_lm_equal_the_oracle_and_segments_are_0_where_none_are_given():
    config = small(MaskedLMConfig, segments=3, embedding_norm=True, head="transform")
    model = masked_lm(config, VOCAB_SIZE)
    params, tokens, segments = random_params(model.spec), random_tokens((2, 5)), random_tokens((2, 5), 3, seed=1)
    segments[1] = 0
    logits = jax.jit(model.apply)(params, {"inputs": tokens, "segments": segments})
    for row, kinds, actual in zip(tokens, segments, np.asarray(logits), strict=True):
        expected = oracle.transformer_lm(config, oracle.float64(params), row, lambda t, s: True, segments=kinds)
        assert_close(actual, expected)
    assert_close(apply(model, params, tokens)[1], logits[1])


def test_a_model_whose_rows_depend_on_each_other_is_not_cut_into_parts():
    class Comparing(TransformerLM):
        by_row = False

    widths = [transformer_lm(small(), 11, kind).width for kind in (TransformerLM, Comparing)]
    assert widths == [small().d_model, None]


def test_in_a_window_padding_changes_no_logit():
    """Also where a window holds padding alone."""
    model = masked_lm(small(MaskedLMConfig, window=2), VOCAB_SIZE)
    params, tokens = random_params(model.spec), random_tokens((1, 7))
    mask = np.arange(7)[None] < 3
    expected = jax.jit(model.apply)(params, {"inputs": tokens[:, :3]})
    actual = np.asarray(jax.jit(model.apply)(params, {"inputs": tokens, "input_mask": mask}))
    assert_close(actual[:, :3], expected)
