"""Mixtures of experts with random weights, built by `transformers`: the same logits here and there, both ways."""

import functools

import jax
import pytest

import fxf
from fxf.base.errors import UserError
from fxf.interop import huggingface
from fxf.interop.architectures import ARCHITECTURES
from fxf.testing import assert_consistent
from helpers import random_tokens
from pytorch_models import assert_equal, imported, libraries  # noqa: F401  It is a fixture.

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
    "gpt_oss": {"num_key_value_heads": 1, "head_dim": 6, "num_local_experts": 5, "num_experts_per_tok": 3,
                "sliding_window": 3, "rope_parameters": {"rope_type": "yarn", "rope_theta": 300.0, "factor": 4.0,
                "original_max_position_embeddings": 64, "truncate": False}},
}  # fmt: skip
DEFAULT = {"rope_type": "default", "rope_theta": 50.0}
CONFIGS |= {  # what the class may also say
    f"gpt_oss:{name}": CONFIGS["gpt_oss"] | changes
    for name, changes in {
        "as the class has it": {"rope_parameters": None, "layer_types": None},
        "without biases": {"attention_bias": False},
        "without windows": {"layer_types": ["full_attention"] * 2, "rope_parameters": DEFAULT},
        "one expert": {"num_experts_per_tok": 1, "tie_word_embeddings": True, "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 50.0, "factor": 3.0, "original_max_position_embeddings": 5}},
    }.items()
}  # fmt: skip
CLASSES = {"mixtral": "Mixtral", "olmoe": "Olmoe", "qwen3_moe": "Qwen3Moe", "deepseek_v3": "DeepseekV3",
           "deepseek_v2": "DeepseekV2", "gpt_oss": "GptOss"}  # fmt: skip
QUICK = ("gpt_oss",)
WRITTEN = tuple(name for name in CONFIGS if not name.startswith("deepseek"))
TOKENS = random_tokens((2, 9), 29)


@functools.cache
def theirs(name):
    """Returns a model whose weights, norms and biases are all random."""
    torch.manual_seed(0)
    kind = name.partition(":")[0]
    config = getattr(transformers, f"{CLASSES[kind]}Config")(
        **SIZES | CONFIGS[name], attn_implementation="eager", experts_implementation="eager"
    )
    model = getattr(transformers, ARCHITECTURES[kind].name)(config).eval()
    for tensor in (*model.parameters(), *(x for key, x in model.named_buffers() if key.endswith("correction_bias"))):
        torch.nn.init.uniform_(tensor, -0.9, 0.9)
    for block in model.model.layers if kind == "gpt_oss" else ():
        block.mlp.experts.gate_up_proj.data *= 5  # some of what they make is clamped at 7
    return model


def logits_of(model):
    with torch.no_grad():
        return model(torch.tensor(TOKENS, dtype=torch.long)).logits.numpy()


@functools.cache
def ours(name):
    return imported(theirs(name))


def some(names):
    """Returns the mark of a test that takes the newest model each time, and the others where all tests are run."""
    others = [pytest.param(name, marks=pytest.mark.thorough) for name in names if name not in QUICK]
    return pytest.mark.parametrize("name", [*(name for name in names if name in QUICK), *others])


@some(CONFIGS)
def test_logits_are_equal(name):
    loaded = ours(name)
    assert_equal(jax.jit(loaded.model.apply)(loaded.params, {"inputs": TOKENS}), logits_of(theirs(name)))


@some(WRITTEN)
def test_transformers_reads_what_is_written(name, tmp_path):
    loaded = ours(name)
    huggingface.save(tmp_path, loaded.config, loaded.params, first=1, end=2, padding=None)
    found = getattr(transformers, type(theirs(name)).__name__).from_pretrained(
        tmp_path, attn_implementation="eager", experts_implementation="eager"
    )
    assert_equal(logits_of(found.eval()), logits_of(theirs(name)))


def test_gpt_oss_decodes_with_a_cache_as_it_reads_the_whole_alone_and_beside_padding():
    assert_consistent(ours("gpt_oss").model, ours("gpt_oss").params, {"inputs": TOKENS})


@pytest.mark.thorough
def test_gpt_oss_generates_what_transformers_does():
    loaded, model = ours("gpt_oss"), theirs("gpt_oss")
    prompts = [[5, 7, 3], [9], [4, 11, 20, 21, 6]]
    for prompt, tokens in zip(prompts, fxf.decode(loaded.model, loaded.params, prompts, 9), strict=True):
        ids = torch.tensor([[0, *prompt]])
        found = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=9, do_sample=False)
        assert found[0, ids.shape[1] :].tolist() == tokens


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
        ("olmoe", {"clip_qkv": 3.0}, "clip_qkv: fxf has OlmoeForCausalLM with 'null', got 3.0"),
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
