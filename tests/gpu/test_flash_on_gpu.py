"""cuDNN's flash attention on an NVIDIA GPU equals fxf's own attention within bfloat16 precision."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flash_models
from flash_models import MODELS, B, T, a_batch, assert_close_in_bfloat16, of_both
from fxf.layers import cudnn_attention
from fxf.models import MODELS as BY_NAME
from fxf.models.transformer_lm import TransformerLMConfig, transformer_lm
from helpers import VOCAB_SIZE, random_params, small, table

pytestmark = pytest.mark.gpu
SIZES = {"d_model": 24, "n_layers": 2, "dtype": "bfloat16"}  # heads of a width that cuDNN has


@pytest.mark.parametrize(("case", "model"), table("flash attention on a gpu"))
def test_losses_and_gradients_are_those_of_the_default(case, model):
    length = case["length"]
    config_class, changes = BY_NAME[model].config, {key: value for key, value in case.items() if key != "length"}
    sizes = {**SIZES, **changes, "max_len": 70}
    names = ("xla", "flash")
    models = [MODELS[config_class](small(config_class, **sizes, attention_implementation=x), VOCAB_SIZE) for x in names]
    assert_close_in_bfloat16(*of_both(models, a_batch(config_class, length)))


def test_documents_that_share_a_row_do_not_see_each_other():
    batch = a_batch(TransformerLMConfig)
    positions = np.concatenate([np.arange(n, dtype=np.int32) for n in (4, 1, 6)])
    batch["positions"] = np.tile(positions, (B, 1))
    batch["documents"] = np.cumsum(batch["positions"] == 0, axis=1, dtype=np.int32)
    sizes = {**SIZES, "positions": "rotary"}
    models = [transformer_lm(small(**sizes, attention_implementation=x), VOCAB_SIZE) for x in ("xla", "flash")]
    assert_close_in_bfloat16(*of_both(models, batch))


@pytest.mark.parametrize(("options", "lengths"), table("a part of the keys"))
def test_a_part_of_the_keys_gives_its_log_sums_and_its_share_of_gradients(lengths, options):
    rng, scale, lengths = np.random.default_rng(0), 0.3, tuple(map(int, lengths.split()))
    shapes = [(2, lengths[0], 4, 16), *[(2, lengths[1], 2, 16)] * 2, *[(2, lengths[0], 4, 16)] * 2]
    q, k, v, read, of_read = (jnp.asarray(rng.normal(size=shape), jnp.bfloat16) for shape in shapes)
    logarithms = jnp.asarray(rng.normal(size=(2, lengths[0], 4)) + 5, jnp.float32)  # over all keys, as `read` is

    def of(kernel, *arrays):
        gradients = kernel.gradients_of_part(scale, *arrays[:4], logarithms, arrays[4], **options)
        return kernel.part(scale, *arrays[:3], **options), gradients

    arrays = (q, k, v, read, of_read)
    found = jax.jit(partial(of, cudnn_attention))(*arrays)
    expected = jax.jit(partial(of, flash_models))(*(x.astype(jnp.float32) for x in arrays))
    for a, b in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        assert np.abs(np.asarray(a, np.float32) - b).max() <= 0.05 * np.abs(b).max()


def test_cached_decoding_gives_the_logits_of_the_whole():
    model = transformer_lm(small(**SIZES, attention_implementation="flash"), VOCAB_SIZE)
    params, batch = random_params(model.spec), a_batch(TransformerLMConfig)
    prompt = {**batch, "inputs": batch["inputs"][:, :5], "lengths": np.full(B, 5)}
    cache = jax.jit(model.prefill, static_argnums=2)(params, prompt, T)
    logits, _ = jax.jit(model.step)(params, cache, batch["inputs"][:, 5])
    whole = np.asarray(jax.jit(model.apply)(params, batch))[:, 5]
    assert np.abs(logits - whole).max() <= 0.05 * np.abs(whole).max()
