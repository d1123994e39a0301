"""model.attention_implementation=flash on a TPU equals fxf's own path; here JAX interprets the kernel on a CPU."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel

from closeness import assert_close, largest_of
from flash_models import assert_as_default, take_float32
from fxf.layers import flash_attention, splash_attention
from fxf.models.encoder_decoder import EncoderDecoderConfig
from fxf.models.transformer_lm import TransformerLMConfig
from helpers import attention_of, places, small

B, H, G, K, T = 2, 2, 1, 3, 131  # two blocks, of which the second is not full
DOCUMENTS = np.sort(np.random.default_rng(1).integers(0, 5, (B, T)))
IS_TOKEN = np.arange(T) < np.array([[T], [70]])


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    """Lets this CPU run the kernel, in blocks of 128."""
    interpreted = functools.partial(splash_attention_kernel.make_splash_mha, interpret=True)
    monkeypatch.setattr(splash_attention_kernel, "make_splash_mha", interpreted)
    monkeypatch.setattr(splash_attention, "BLOCKS", (128,))
    take_float32(monkeypatch)
    monkeypatch.setitem(flash_attention.KERNELS, "cpu", splash_attention)


def reads(attend, where, arrays):
    """Returns what attention reads, where a query is a token, and the gradients by queries, keys and values."""
    is_token = 1 if where.documents is None else (where.documents > 0)[:, None, :, None]

    def total(q, k, v):
        read = attend(q, (k, v)) * is_token
        return (read * jnp.cos(jnp.arange(read.size).reshape(read.shape))).sum(), read

    return jax.jit(jax.grad(total, argnums=(0, 1, 2), has_aux=True))(*arrays)


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        (
            {"window": 20, "query_scale": 0.3, "attention_softcap": 0.7},
            {"documents": jnp.asarray(DOCUMENTS + 1)},
        ),
        pytest.param({}, {}, marks=pytest.mark.thorough),
        ({}, {"causal": False}),
        pytest.param(
            {"window": 90}, {"causal": False, "documents": jnp.asarray(IS_TOKEN, jnp.int32)}, marks=pytest.mark.thorough
        ),
    ],
)
def test_what_is_read_and_its_gradients_are_those_of_the_default(changes, options):
    config = small(n_heads=H, n_kv_heads=G, d_model=H * K, **changes)
    rng = np.random.default_rng(0)
    arrays = [jnp.asarray(rng.normal(size=(B, n, T, K)), jnp.float32) for n in (H, G, G)]
    layer, where = attention_of(config), places(T, **options)
    expected = reads(lambda q, memory: layer.read({}, q, memory, layer.mask({}, where, where)), where, arrays)
    found = reads(lambda q, memory: splash_attention.attend(layer, {}, q, memory, where, where), where, arrays)
    assert_close(found, expected, largest=largest_of(expected))


@pytest.mark.thorough  # a minute of compiling
@pytest.mark.parametrize(
    ("config_class", "length", "changes"),
    [
        (TransformerLMConfig, 11, {"positions": "rotary", "position_range": 29, "qk_norm": True, "remat": "full"}),
        (TransformerLMConfig, 12, {"n_layers": 2, "window": 3, "global_every": 2, "query_scale": 2.0, "head_dim": 4}),
        (EncoderDecoderConfig, 11, {"n_kv_heads": 1, "attention_bias": "all", "block": "post_norm", "window": 7}),
    ],
)
def test_losses_and_gradients_of_models_are_those_of_the_default(config_class, length, changes):
    assert_as_default(config_class, length, changes)


@pytest.mark.parametrize(("window", "n_parts", "swaps"), [(4096, 8, False), (2048, 1, False), (0, 8, True)])
def test_blocks_of_a_long_row_have_at_most_a_tenth_more_pairs_than_are_seen(window, n_parts, swaps, monkeypatch):
    monkeypatch.undo()
    length = 32768
    kernel = splash_attention._kernel((length, length), True, window, 0.0, n_parts, swaps)
    sizes, blocks = kernel.kwargs["block_sizes"], np.count_nonzero(kernel.fwd_mask_info.block_mask)
    seen = np.minimum(np.arange(length) + 1, window or length).sum()
    assert seen <= blocks * sizes.block_q * sizes.block_kv <= 1.1 * seen
