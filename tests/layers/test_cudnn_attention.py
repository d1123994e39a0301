"""model.attention_implementation=flash on a GPU equals fxf's own path; here through what JAX has for any device.

What cuDNN itself computes needs an NVIDIA GPU; these tests show what it is asked for.
"""

import jax
import numpy as np
import pytest

from closeness import assert_close
from flash_models import B, T, a_batch, assert_as_default, take_float32
from fxf.layers import cudnn_attention, flash_attention
from fxf.models.encoder_decoder import EncoderDecoderConfig
from fxf.models.transformer_lm import MaskedLMConfig, TransformerLMConfig, masked_lm, transformer_lm
from fxf.training.gradient import batch_loss, loss_and_gradient
from helpers import VOCAB_SIZE, random_params, random_tokens, small


@pytest.fixture
def asked(monkeypatch):
    """Lets JAX's own implementation stand in for cuDNN's; returns what each call asks of it."""
    calls = []
    compute = jax.nn.dot_product_attention

    def recorded(q, k, v, **options):
        calls.append({"lengths": (q.shape[1], k.shape[1]), **options})
        return compute(q, k, v, **options)

    monkeypatch.setattr(jax.nn, "dot_product_attention", recorded)
    monkeypatch.setattr(cudnn_attention, "IMPLEMENTATION", "xla")
    take_float32(monkeypatch)
    monkeypatch.setitem(flash_attention.KERNELS, "cpu", cudnn_attention)
    return calls


POSITIONS = np.concatenate([np.arange(n, dtype=np.int32) for n in (4, 1, 6)]) * np.ones((B, 1), np.int32)
DOCUMENTS = {"positions": POSITIONS, "documents": np.cumsum(POSITIONS == 0, axis=1, dtype=np.int32)}
OF_BOTH_SIDES = EncoderDecoderConfig, T, {"n_kv_heads": 1, "attention_bias": "all", "block": "post_norm", "window": 7}
MORE = [
    OF_BOTH_SIDES,
    (TransformerLMConfig, T, {"positions": "rotary", "position_range": 29, "qk_norm": True}),
    (TransformerLMConfig, 12, {"n_layers": 2, "window": 3, "global_every": 2, "query_scale": 2.0}),
    (MaskedLMConfig, 12, {"positions": "alibi", "n_kv_heads": 1}),
]


# JAX derives the gradients of all cases in the same way.
@pytest.mark.parametrize(
    ("config_class", "length", "changes", "more", "compute"),
    [
        (TransformerLMConfig, T, {"positions": "alibi_geometric", "window": 5, "n_kv_heads": 1}, {}, loss_and_gradient),
        (TransformerLMConfig, T, {"positions": "rotary", "d_model": 12}, DOCUMENTS, batch_loss),
        (*OF_BOTH_SIDES, {}, batch_loss),
        *(pytest.param(*case, {}, loss_and_gradient, marks=pytest.mark.thorough) for case in MORE),
    ],
)
def test_losses_and_gradients_are_those_of_the_default(asked, config_class, length, changes, more, compute):
    assert_as_default(config_class, length, changes, compute, more=more)
    assert asked and all(size % 2 == 0 for call in asked for size in call["lengths"])


@pytest.mark.parametrize(
    "changes", [{"window": 3, "n_layers": 2, "global_every": 2, "remat": "full"}, {"scan_blocks": True}]
)
def test_causal_attention_is_asked_for_as_such_without_an_array_of_all_pairs(asked, changes):
    """In each block, whatever the windows of the others."""
    model = transformer_lm(small(attention_implementation="flash", **changes), VOCAB_SIZE)
    jax.eval_shape(model.apply, random_params(model.spec), a_batch(TransformerLMConfig))
    windows = [*dict.fromkeys(call["local_window_size"] for call in asked)]  # a loop over blocks is traced twice
    assert windows == ([(2, 0), None] if "window" in changes else [None])
    assert all(call["is_causal"] and not {"bias", "mask"} & set(call) for call in asked)


def test_padding_and_the_bias_of_positions_are_handed_over_as_arrays(asked):
    model = masked_lm(small(MaskedLMConfig, positions="alibi", attention_implementation="flash"), VOCAB_SIZE)
    jax.eval_shape(model.apply, random_params(model.spec), a_batch(MaskedLMConfig))
    even = T + 1
    assert not asked[0]["is_causal"] and asked[0]["bias"].shape == (1, 3, even, even)
    assert asked[0]["mask"].shape == (B, 3, even, even) and asked[0]["mask"].dtype == bool


def test_a_query_that_may_see_nothing_leaves_the_others_as_they_are(asked):
    """Padding whose window holds padding alone, and a row without a token."""
    flash, xla = (small(MaskedLMConfig, window=2, attention_implementation=name) for name in ("flash", "xla"))
    model = masked_lm(flash, VOCAB_SIZE)
    params, tokens = random_params(model.spec), random_tokens((2, 7))
    is_token = np.arange(7) < np.array([[3], [0]])
    padded = np.asarray(jax.jit(model.apply)(params, {"inputs": tokens, "input_mask": is_token}))
    whole = jax.jit(masked_lm(xla, VOCAB_SIZE).apply)(params, {"inputs": tokens[:1, :3]})
    assert_close(padded[:1, :3], whole)
    assert np.isfinite(padded).all()
