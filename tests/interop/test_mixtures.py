"""Mixtures of experts with random weights, built by `transformers`: the same logits here and there, both ways."""

import functools

import jax
import numpy as np
import pytest

from fxf.base.errors import UserError
from fxf.interop import huggingface
from fxf.interop.architectures import ARCHITECTURES
from helpers import random_tokens
from pytorch_models import imported, libraries  # noqa: F401  It is a fixture.

pytest.importorskip("safetensors")

torch = transformers = None  # set by `libraries`

SIZES = {"vocab_size": 29, "hidden_size": 12, "intermediate_size": 7, "num_hidden_layers": 2, "num_attention_heads": 3,
         "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": None, "pad_token_id": None}  # fmt: skip
LATENTS = {"num_key_value_heads": 3, "moe_intermediate_size": 5, "n_routed_experts": 6, "num_experts_per_tok": 3,
           "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 6, "v_head_dim": 5,
           "first_k_dense_replace": 1}  # fmt: skip
CONFIGS = {
    "mixtral": {"num_key_value_heads": 1, "num_local_experts": 4, "sliding_window": 3},
    "olmoe": {"num_key_value_heads": 1, "num_experts": 5, "num_experts_per_tok": 3},
    "qwen3_moe": {"num_key_value_heads": 1, "head_dim": 6, "moe_intermediate_size": 5, "num_experts": 6,
                  "num_experts_per_tok": 2, "norm_topk_prob": True},
    "deepseek_v3": {**LATENTS, "q_lora_rank": 8, "n_shared_experts": 2, "n_group": 3, "topk_group": 2},
    "deepseek_v2": {**LATENTS, "q_lora_rank": None, "n_shared_experts": 1, "routed_scaling_factor": 1.5},
}  # fmt: skip
CLASSES = {"mixtral": "Mixtral", "olmoe": "Olmoe", "qwen3_moe": "Qwen3Moe", "deepseek_v3": "DeepseekV3",
           "deepseek_v2": "DeepseekV2"}  # fmt: skip
WRITTEN = ("mixtral", "olmoe", "qwen3_moe")
TOKENS = random_tokens((2, 9), 29)


@functools.cache
def theirs(name):
    """Returns a model whose weights, norms and biases are all random."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{CLASSES[name]}Config")(
        **SIZES | CONFIGS[name], attn_implementation="eager", experts_implementation="eager"
    )
    model = getattr(transformers, ARCHITECTURES[name].name)(config).eval()
    for tensor in (*model.parameters(), *(x for key, x in model.named_buffers() if key.endswith("correction_bias"))):
        torch.nn.init.uniform_(tensor, -0.9, 0.9)
    return model


def logits_of(model):
    with torch.no_grad():
        return model(torch.tensor(TOKENS, dtype=torch.long)).logits.numpy()


@functools.cache
def ours(name):
    return imported(theirs(name))


def assert_equal(found, expected):
    assert expected.std() > 0.1
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_are_equal(name):
    loaded = ours(name)
    assert_equal(jax.jit(loaded.model.apply)(loaded.params, {"inputs": TOKENS}), logits_of(theirs(name)))


@pytest.mark.parametrize("name", WRITTEN)
def test_transformers_reads_what_is_written(name, tmp_path):
    loaded = ours(name)
    huggingface.save(tmp_path, loaded.config, loaded.params, first=1, end=2, padding=None)
    found = getattr(transformers, ARCHITECTURES[name].name).from_pretrained(
        tmp_path, attn_implementation="eager", experts_implementation="eager"
    )
    assert_equal(logits_of(found.eval()), logits_of(theirs(name)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_shared": 4}, r"model\.layers\.feed_forward\.d_shared: \w+ has 0, got 4"),
        ({"bias_rate": 0.1}, r"model\.layers\.feed_forward\.bias_rate: \w+ has False, got True"),
        ({"scores": "sigmoid"}, r"model\.layers\.feed_forward\.scores: \w+ has 'softmax', got 'sigmoid'"),
    ],
    ids=str,
)
def test_a_mixture_that_transformers_has_not_is_not_written(changes, message, tmp_path):
    config = ours("mixtral").config
    own = {"feed_forward": {**config.layers["feed_forward"], **changes}}
    changed = type(config)(**{**vars(config), "layers": own})
    with pytest.raises(UserError, match=message):
        huggingface.save(tmp_path, changed, ours("mixtral").params, first=1, end=2, padding=None)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("olmoe", {"clip_qkv": 3.0}, "clip_qkv: fxf has OlmoeForCausalLM with null, got 3.0"),
        ("qwen3_moe", {"decoder_sparse_step": 2}, "decoder_sparse_step: fxf has .* with 1, got 2"),
        ("deepseek_v3", {"rope_interleave": False}, "rope_interleave: fxf has .* with True, got False"),
        (
            "deepseek_v3",
            {"rope_parameters": {"rope_type": "yarn", "rope_theta": 9.0, "factor": 2.0}},
            "rope_type: fxf has .* without 'yarn'",
        ),
        ("deepseek_v2", {"topk_method": "group_limited_greedy"}, "topk_method: fxf has .* with 'greedy'"),
    ],
    ids=str,
)
def test_what_fxf_does_not_have_is_refused(name, changes, message):
    record = {**theirs(name).config.to_dict(), **changes}
    with pytest.raises(UserError, match=message):
        huggingface._section(record, "a folder")
