import functools

import jax
import numpy as np
import pytest

import oracle
from closeness import assert_close
from fxf.base.weights import count
from fxf.layers.kinds import ATTENTIONS
from fxf.models.encoder_decoder import EncoderDecoderConfig, encoder_decoder
from fxf.runs.configs import folder
from fxf.runs.guests import load
from fxf.testing import assert_cached_equals_full
from helpers import loss_and_gradient, random_params, some
from oracle import float64

PRESETS = load(folder() / "translation.py").PRESETS

VOCAB_SIZE = 11
SIZES = {"n_layers": 1, "d_model": 12, "d_ff": 17, "n_heads": 3, "max_len": 13}
# Transformer-Tiny's keys, and its sizes.
TINY = {
    **{"block": "pre_norm", "final_norm": False, "norm_epsilon": 1e-5, "norm_epsilon_in": "variance"},
    **{"positions": "sinusoidal", "attention_bias": "all", "embeddings": "shared", "activation": "relu"},
}
TINY_SIZES = {"n_layers": 4, "d_model": 128, "d_ff": 256, "n_heads": 4}
FORMS, LINEAR = {**PRESETS, "tiny": TINY}, {**TINY, "positions": "none", "attention": "linear"}


def config_of(form, **changes):
    return EncoderDecoderConfig(**{**FORMS.get(form, LINEAR), **SIZES, **changes})


def model_and_params(form, **changes):
    """Returns a small model of this form, and params."""
    model = encoder_decoder(config_of(form, **changes), VOCAB_SIZE)
    return model, random_params(model.spec)


def random_batch(source_lengths, n_source, n_inputs, seed=0):
    """Returns random tokens everywhere, also at padding."""
    rng = np.random.default_rng(seed)
    n_rows = len(source_lengths)
    return {
        "source": rng.integers(0, VOCAB_SIZE, (n_rows, n_source)).astype(np.int32),
        "source_mask": np.arange(n_source)[None] < np.array(source_lengths)[:, None],
        "inputs": rng.integers(0, VOCAB_SIZE, (n_rows, n_inputs)).astype(np.int32),
    }


LARGER = {"n_layers": 2, "n_heads": 4, "d_model": 36, "d_ff": 50, "scan_blocks": True, "final_norm": True, "window": 3}


@some("case", [each for form in FORMS for each in (form, f"{form}, larger")], [*PRESETS, "tiny, larger"])
def test_logits_equal_the_oracle(case):
    form, _, larger = case.partition(", ")
    sizes, batch = LARGER if larger else {}, random_batch([7, 1, 4], 7, 9)
    model, params = model_and_params(form, **sizes)
    logits = np.asarray(jax.jit(model.apply)(params, batch))
    for source, mask, inputs, actual in zip(*batch.values(), logits, strict=True):
        expected = oracle.encoder_decoder(config_of(form, **sizes), float64(params), source[mask], inputs)
        assert_close(actual, expected)


def test_embeddings_and_outputs_of_layers_of_both_sides_are_dropped():
    model, params = model_and_params("tiny", embedding_dropout=0.5, dropout=0.5)
    program = jax.make_jaxpr(lambda key: model.features(params, random_batch([4], 4, 6), rng=key))(jax.random.key(0))
    assert str(program).count("random_bits[") == 2 + 2 + 3


@some("form", [*FORMS, "linear"], ["tiny", "linear"])
def test_padding_tokens_change_nothing(form):
    """No bit of loss, gradient or a logit that counts changes, also with a row without weight or source."""
    model, params = model_and_params(form)
    batch = random_batch([7, 3, 5], 7, 9)
    weights = (np.arange(9)[None] < np.array([4, 9, 0])[:, None]).astype(np.float32)
    targets = random_batch([1] * 3, 1, 9, seed=1)["inputs"]
    changed = {
        "source": np.where(batch["source_mask"], batch["source"], (batch["source"] + 1) % VOCAB_SIZE),
        "source_mask": batch["source_mask"] & weights.any(1, keepdims=True),
        "inputs": np.where(weights > 0, batch["inputs"], (batch["inputs"] + 1) % VOCAB_SIZE),
    }
    logits, other_logits = map(np.asarray, map(jax.jit(functools.partial(model.apply, params)), (batch, changed)))
    np.testing.assert_array_equal(logits[weights > 0], other_logits[weights > 0])
    assert not np.array_equal(logits, other_logits) and np.isfinite(other_logits).all()

    learn = jax.jit(lambda batch: loss_and_gradient(model, params, {**batch, "weights": weights}))
    other_targets = np.where(weights > 0, targets, (targets + 1) % VOCAB_SIZE)
    learned, other_learned = learn({**batch, "targets": targets}), learn({**changed, "targets": other_targets})
    jax.tree.map(np.testing.assert_array_equal, learned, other_learned)


@pytest.mark.thorough  # every time test_searches.py decodes with linear attention, and test_positions.py with rotary
@pytest.mark.parametrize("case", ["tiny, window", *FORMS, *(f"tiny, {kind}" for kind in [*ATTENTIONS][1:])])
def test_prefill_and_cached_steps_give_the_logits_of_the_full_forward(case):
    form, _, kind = case.partition(", ")
    changes = {"positions": "none", "attention_bias": "output", "attention": kind} if kind else {}
    changes = {"positions": "alibi", "window": 3, "n_kv_heads": 1} if kind == "window" else changes
    # With two blocks, what prompt tokens see reaches the logits.
    model, params = model_and_params(form, n_layers=2, scan_blocks=True, **changes)
    assert_cached_equals_full(model, params, random_batch([7, 1, 4, 3], 7, 11), capacities=[17])


def test_parameters_are_as_many_as_counted_by_hand():
    """Seed 003's tables and layers have no final norm, seed 000's have 512 positions."""
    forms = ({**TINY, **TINY_SIZES}, 9712), (PRESETS["annotated"], 30), (PRESETS["wolfram"], 100)
    forms += (({**PRESETS["wolfram"], "blocks": "attention+cross_attention+feed_forward"}, 100),)
    counts = [count(encoder_decoder(EncoderDecoderConfig(**form), vocab_size).spec) for form, vocab_size in forms]
    assert counts == [2_568_192, 44_116_992, 2_946_660, 2_946_660]
