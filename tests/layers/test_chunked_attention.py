"""model.attention_implementation=chunked has the numbers of the default, and memory that grows with the length."""

import jax
import numpy as np
import pytest

from flash_models import T, a_batch, assert_as_default
from fxf.base.weights import shapes
from fxf.layers import chunked_attention
from fxf.models.encoder_decoder import EncoderDecoderConfig
from fxf.models.transformer_lm import MaskedLMConfig, TransformerLMConfig, masked_lm, transformer_lm
from fxf.training.gradient import batch_loss, loss_and_gradient
from helpers import VOCAB_SIZE, random_params, small

WINDOWS = {"n_layers": 2, "d_model": 12, "n_kv_heads": 1, "positions": "rotary", "window": 3, "global_every": 2}
DOCUMENTS = {"documents": np.repeat([[1, 2]] * 3, [5, T - 5], axis=1)}


def in_chunks_of_four(monkeypatch, unrolled):
    """Cuts sequences into chunks of four queries, which stand in a row if `unrolled`, else in a loop."""
    monkeypatch.setattr(chunked_attention, "CHUNK", 4)
    monkeypatch.setattr(chunked_attention, "UNROLLED", 3 if unrolled else 2)


EXPRESSIVE = {"attention": "expressive", "positions": "alibi"}
CAPPED = {"positions": "alibi", "window": 2, "attention_softcap": 2.0, "n_kv_heads": 1}


# JAX derives the gradients, of the loop and of the row in the same way for every case.
@pytest.mark.parametrize(
    ("config_class", "changes", "more", "unrolled", "compute"),
    [
        (TransformerLMConfig, WINDOWS, DOCUMENTS, True, batch_loss),
        (MaskedLMConfig, CAPPED, {}, False, loss_and_gradient),
        pytest.param(EncoderDecoderConfig, {"positions": "learned"}, {}, False, batch_loss, marks=pytest.mark.thorough),
        pytest.param(TransformerLMConfig, WINDOWS, DOCUMENTS, True, loss_and_gradient, marks=pytest.mark.thorough),
        pytest.param(TransformerLMConfig, EXPRESSIVE, {}, False, loss_and_gradient, marks=pytest.mark.thorough),
    ],
)
def test_losses_and_gradients_are_those_of_the_default(config_class, changes, more, unrolled, compute, monkeypatch):
    in_chunks_of_four(monkeypatch, unrolled)
    assert_as_default(config_class, T, changes, compute, implementation="chunked", more=more)


def test_dropout_of_attention_has_bits_of_its_own_in_each_chunk(monkeypatch):
    in_chunks_of_four(monkeypatch, False)
    options = {"positions": "none", "attention_dropout": 0.5, "attention_implementation": "chunked"}
    model = masked_lm(small(MaskedLMConfig, n_layers=1, **options), VOCAB_SIZE)  # so that all queries see the same
    params, same = random_params(model.spec), {"inputs": np.ones((1, 12), np.int32)}
    drawn = jax.jit(lambda seed: model.apply(params, same, rng=jax.random.key(seed))[0])
    row, other = np.asarray(drawn(0)), drawn(1)
    assert (row != other).any() and (row[4:8] != row[8:12]).any()


@pytest.mark.thorough
def test_memory_grows_with_the_length_and_not_with_its_square():
    def planned_bytes(length, implementation):
        """Returns the memory of a gradient step, besides its arguments."""
        config = small(n_layers=1, max_len=length, positions="none", attention_implementation=implementation)
        model, batch = transformer_lm(config, VOCAB_SIZE), a_batch(TransformerLMConfig, length)
        step = jax.jit(jax.grad(lambda params: batch_loss(model, params, batch)[0]))
        return step.lower(shapes(model.spec)).compile().memory_analysis().temp_size_in_bytes

    half, whole = (planned_bytes(length, "chunked") for length in (2048, 4096))
    assert whole <= 2.3 * half
    assert planned_bytes(2048, "xla") > 2 * half
