"""model.attention_implementation=chunked has the numbers of the default, and memory that grows with the length."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from closeness import assert_close, largest_of
from flash_models import MODELS, B, T, a_batch, of_model
from fxf.base.weights import shapes
from fxf.layers import chunked_attention
from fxf.models.encoder_decoder import EncoderDecoderConfig
from fxf.models.transformer_lm import MaskedLMConfig, TransformerLMConfig, masked_lm, transformer_lm
from fxf.training.gradient import batch_loss, loss_and_gradient
from helpers import VOCAB_SIZE, random_params, random_tokens, small, some

GLOBAL = {"n_layers": 2, "d_model": 12, "n_heads": 3, "n_kv_heads": 1, "window": 3, "global_every": 2}
HOW = ("in a row", "in a loop")


def as_chunked(config):
    return dataclasses.replace(config, attention_implementation="chunked")


def in_chunks_of_four(monkeypatch, unrolled):
    """Cuts sequences into chunks of four queries, which stand in a row if `unrolled`, else in a loop."""
    monkeypatch.setattr(chunked_attention, "CHUNK", 4)
    monkeypatch.setattr(chunked_attention, "UNROLLED", 3 if unrolled else 2)


CASES = {
    "windows": (TransformerLMConfig, {**GLOBAL, "positions": "rotary"}),
    "expressive": (TransformerLMConfig, {"attention": "expressive", "positions": "alibi"}),
    "padding": (MaskedLMConfig, {"positions": "alibi", "window": 2, "attention_softcap": 2.0, "n_kv_heads": 1}),
    "source": (EncoderDecoderConfig, {"positions": "learned"}),
}
# JAX derives the gradients, of the loop and of the row in the same way for every case.
QUICK = {
    ("windows", "in a row"): batch_loss,
    ("padding", "in a loop"): loss_and_gradient,
    ("source", "in a loop"): batch_loss,
}


@functools.cache
def default_of(case, compute):
    """Returns the config of a case, and the loss, maybe with the gradient, of its default attention."""
    config_class, changes = CASES[case]
    config = small(config_class, **{"n_layers": 1, **changes})
    return config, of_model(MODELS[config_class](config, VOCAB_SIZE), a_batch(config_class), compute)


@pytest.mark.parametrize(
    ("case", "how", "compute"),
    [
        *((*each, compute) for each, compute in QUICK.items()),
        *(
            pytest.param(case, how, loss_and_gradient, marks=pytest.mark.thorough)
            for case in CASES
            for how in HOW
            if QUICK.get((case, how)) is not loss_and_gradient
        ),
    ],
)
def test_losses_and_gradients_are_those_of_the_default(case, how, compute, monkeypatch):
    in_chunks_of_four(monkeypatch, how == "in a row")
    config, expected = default_of(case, compute)
    model = MODELS[type(config)](as_chunked(config), VOCAB_SIZE)
    assert_close(of_model(model, a_batch(type(config)), compute), expected, largest=largest_of(expected))


@some("how", HOW, ["in a row"])
def test_documents_that_share_a_row_are_kept_apart(how, monkeypatch):
    in_chunks_of_four(monkeypatch, how == "in a row")
    config = small(n_layers=1, positions="learned", attention_implementation="chunked")
    model, batch = transformer_lm(config, VOCAB_SIZE), a_batch(TransformerLMConfig)
    params, documents = random_params(model.spec), np.repeat([[1, 2]], [5, T - 5], axis=1) * np.ones((B, 1), int)
    apply = jax.jit(model.apply)
    apart = np.asarray(apply(params, {"inputs": batch["inputs"], "documents": documents}))
    assert_close(apart[:, :5], apply(params, {"inputs": batch["inputs"][:, :5]}))
    changed = batch["inputs"].copy()
    changed[:, :5] = (changed[:, :5] + 1) % VOCAB_SIZE
    np.testing.assert_array_equal(
        apart[:, 5:], np.asarray(apply(params, {"inputs": changed, "documents": documents}))[:, 5:]
    )


@some("how", HOW, ["in a loop"])
def test_dropout_of_attention_has_bits_of_its_own_in_each_chunk(how, monkeypatch):
    in_chunks_of_four(monkeypatch, how == "in a row")
    options = {"positions": "none", "attention_dropout": 0.5, "attention_implementation": "chunked"}
    model = masked_lm(small(MaskedLMConfig, n_layers=1, **options), VOCAB_SIZE)  # so that all queries see the same
    params, same = random_params(model.spec), {"inputs": np.ones((1, 12), np.int32)}
    drawn = jax.jit(lambda seed: model.apply(params, same, rng=jax.random.key(seed))[0])
    rows = [np.asarray(drawn(seed)) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(rows[0], rows[1])
    assert (rows[0] != rows[2]).any()
    assert (rows[0][4:8] != rows[0][8:12]).any()


def planned_bytes(length, implementation):
    """Returns the memory of a gradient step on one row, besides its arguments."""
    config = small(n_layers=1, max_len=length, positions="none", attention_implementation=implementation)
    model = transformer_lm(config, VOCAB_SIZE)
    tokens = random_tokens((1, length))
    batch = {"inputs": tokens, "targets": tokens, "weights": np.ones((1, length), np.float32)}
    step = jax.jit(jax.grad(lambda params: batch_loss(model, params, batch)[0]))
    return step.lower(shapes(model.spec)).compile().memory_analysis().temp_size_in_bytes


@pytest.mark.thorough
def test_memory_grows_with_the_length_and_not_with_its_square():
    half, whole = (planned_bytes(length, "chunked") for length in (2048, 4096))
    assert whole <= 2.3 * half
    assert planned_bytes(2048, "xla") > 2 * half
