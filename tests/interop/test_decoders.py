"""Decoders with random weights, built by `transformers`: the same logits here and there, both ways."""

import functools
import warnings

import jax
import pytest

import fxf
from fxf.base.errors import UserError
from fxf.interop import huggingface
from fxf.interop.architectures import ARCHITECTURES
from fxf.interop.rotary_decoders import pattern
from fxf.testing import assert_consistent
from helpers import random_tokens, some
from pytorch_models import assert_equal, imported, libraries  # noqa: F401  It is a fixture.

pytest.importorskip("safetensors")

torch = transformers = None  # set by `libraries`

SIZES = {"hidden_size": 12, "intermediate_size": 17, "num_hidden_layers": 2, "num_attention_heads": 3,
         "num_key_value_heads": 1, "max_position_embeddings": 128, "bos_token_id": 1, "eos_token_id": None,
         "pad_token_id": None}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "rope_theta": 300.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 300.0, "factor": 4.0, "original_max_position_embeddings": 64}
DEFAULT = {"rope_type": "default", "rope_theta": 50.0}
LATENTS = {"num_key_value_heads": 3, "moe_intermediate_size": 5, "n_routed_experts": 6, "num_experts_per_tok": 3,
           "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 6, "v_head_dim": 5, "intermediate_size": 7,
           "first_k_dense_replace": 1}  # fmt: skip
CONFIGS = {
    "llama": {"num_hidden_layers": 1, "head_dim": 8, "rope_parameters": LLAMA3},
    "mistral": {"num_hidden_layers": 1, "sliding_window": 3,
                "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 100.0}},
    "qwen2": {"num_hidden_layers": 1, "rope_parameters": {"rope_type": "default", "rope_theta": 100.0}},
    "qwen3": {"num_hidden_layers": 1, "head_dim": 6, "tie_word_embeddings": True,
              "use_sliding_window": True, "sliding_window": 3, "max_window_layers": 0},
    "gemma2": {"head_dim": 6, "sliding_window": 3, "query_pre_attn_scalar": 3, "pad_token_id": 0,
               "attn_logit_softcapping": 2.0, "final_logit_softcapping": 2.0},
    "gemma3_text": {"head_dim": 6, "sliding_window": 3, "query_pre_attn_scalar": 5, "pad_token_id": 0,
                    "layer_types": ["sliding_attention", "full_attention"],
                    "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 30.0},
                                        "full_attention": {"rope_type": "linear", "rope_theta": 90.0, "factor": 2.0}}},
    "gemma": {"head_dim": 6, "pad_token_id": 0},
    "phi3": {"num_hidden_layers": 1, "pad_token_id": 0},
    "olmo2": {"pad_token_id": 0, "rope_parameters": YARN},
    "smollm3": {"num_hidden_layers": 5, "no_rope_layer_interval": 3, "pad_token_id": 0, "use_sliding_window": False,
                "rope_parameters": YARN},
    "mixtral": {"intermediate_size": 7, "num_local_experts": 4, "sliding_window": 3},
    "olmoe": {"intermediate_size": 7, "num_experts": 5, "num_experts_per_tok": 3},
    "qwen3_moe": {"head_dim": 6, "moe_intermediate_size": 5, "num_experts": 6, "num_experts_per_tok": 2,
                  "norm_topk_prob": True},
    "deepseek_v3": {**LATENTS, "q_lora_rank": 8, "n_shared_experts": 2, "n_group": 3, "topk_group": 2},
    "deepseek_v2": {**LATENTS, "q_lora_rank": None, "n_shared_experts": 1, "routed_scaling_factor": 1.5},
    "gpt_oss": {"head_dim": 6, "intermediate_size": 7, "num_local_experts": 5, "num_experts_per_tok": 3,
                "sliding_window": 3, "rope_parameters": YARN | {"truncate": False}},
    "qwen3_next": {"head_dim": 16, "linear_conv_kernel_dim": 3, "linear_key_head_dim": 5, "linear_value_head_dim": 7,
                   "linear_num_key_heads": 2, "linear_num_value_heads": 6, "num_experts": 5, "num_experts_per_tok": 2,
                   "moe_intermediate_size": 8, "shared_expert_intermediate_size": 11, "mlp_only_layers": [1],
                   "layer_types": ["linear_attention", "linear_attention", "full_attention"], "num_hidden_layers": 3},
    "mamba2": {"num_heads": 6, "head_dim": 4, "state_size": 5, "n_groups": 3, "conv_kernel": 3, "chunk_size": 4},
}  # fmt: skip
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
CLASSES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3", "gemma2": "Gemma2",
           "gemma3_text": "Gemma3Text", "gemma": "Gemma", "phi3": "Phi3", "olmo2": "Olmo2", "smollm3": "SmolLM3",
           "mixtral": "Mixtral", "olmoe": "Olmoe", "qwen3_moe": "Qwen3Moe", "deepseek_v3": "DeepseekV3",
           "deepseek_v2": "DeepseekV2", "gpt_oss": "GptOss", "qwen3_next": "Qwen3Next", "mamba2": "Mamba2"}  # fmt: skip
FADING = ("qwen3_next", "mamba2")  # read in chunks of 64 tokens


def eager(name):
    """Returns how `transformers` must compute."""
    has_experts = {"num_experts", "num_local_experts", "n_routed_experts"} & {*CONFIGS[name]}
    return {"attn_implementation": "eager"} | ({"experts_implementation": "eager"} if has_experts else {})


@functools.cache
def theirs(name):
    """Returns a model whose weights, biases and norms are all random, and so large that other tokens mean others."""
    torch.manual_seed(0)
    kind, size = name.partition(":")[0], 0.4 if name in FADING else 0.9
    config = getattr(transformers, f"{CLASSES[kind]}Config")(vocab_size=29, **SIZES | CONFIGS[name], **eager(name))
    model = getattr(transformers, ARCHITECTURES[kind].name)(config).eval()
    for tensor in (*model.parameters(), *(x for key, x in model.named_buffers() if key.endswith("correction_bias"))):
        torch.nn.init.uniform_(tensor, -size, size)
    if kind.startswith("gemma"):  # whose scales are 1 more: else each token, read from the same table, begets itself
        model.model.norm.weight.data -= 1
    for block in model.model.layers if kind == "gpt_oss" else ():
        block.mlp.experts.gate_up_proj.data *= 5  # some of what they make is clamped at 7
    return model


@functools.cache
def ours(name):
    return imported(theirs(name))


def tokens_of(name):
    return random_tokens((2, 70 if name in FADING else 9), 29)


def logits_of(model, name):
    with torch.no_grad():
        return model(torch.tensor(tokens_of(name), dtype=torch.long)).logits.numpy()


@some("name", CONFIGS, ("llama", "gemma3_text", "olmo2", "gpt_oss", *FADING))
def test_logits_are_equal(name):
    found = jax.jit(ours(name).model.apply)(ours(name).params, {"inputs": tokens_of(name)})
    assert_equal(found, logits_of(theirs(name), name))


@some("name", [name for name in CONFIGS if not name.startswith("deepseek")], ("smollm3", "gpt_oss", *FADING))
def test_transformers_reads_what_is_written(name, tmp_path):
    huggingface.save(tmp_path, ours(name).config, ours(name).params, first=1, end=2, padding=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, **eager(name)).eval()
    assert_equal(logits_of(found, name), logits_of(theirs(name), name))


@pytest.mark.thorough
def test_gpt_oss_decodes_with_a_cache_as_it_reads_the_whole_alone_and_beside_padding():
    assert_consistent(ours("gpt_oss").model, ours("gpt_oss").params, {"inputs": tokens_of("gpt_oss")})


@pytest.mark.thorough
def test_gpt_oss_generates_what_transformers_does():
    loaded, model = ours("gpt_oss"), theirs("gpt_oss")
    prompts = [[5, 7, 3], [9], [4, 11, 20, 21, 6]]
    for prompt, tokens in zip(prompts, fxf.decode(loaded.model, loaded.params, prompts, 9), strict=True):
        ids = torch.tensor([[0, *prompt]])
        found = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=9, do_sample=False)
        assert found[0, ids.shape[1] :].tolist() == tokens


def test_a_pattern_is_the_shortest_that_repeats():
    assert pattern(["a"] * 4) == "a"
    assert pattern(["a", "a", "b"] * 2 + ["a"]) == "2*(a), b"
    assert pattern(["b", "a", "a"]) == "b, 2*(a)"


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


HALVED = {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("olmoe", {"clip_qkv": 3.0}, "clip_qkv: fxf has OlmoeForCausalLM with 'null', got 3.0"),
        ("qwen3_moe", {"decoder_sparse_step": 2}, "decoder_sparse_step: fxf has .* with 1, got 2"),
        ("deepseek_v3", {"rope_interleave": False}, "rope_interleave: fxf has .* with True, got False"),
        ("deepseek_v3", {"rope_parameters": YARN}, "rope_type: fxf has .* without 'yarn'"),
        ("deepseek_v2", {"topk_method": "group_limited_greedy"}, "topk_method: fxf has .* with 'greedy'"),
        ("qwen3_next", HALVED, "has .* with 0.25"),
        ("mamba2", {"time_step_limit": [0.0, 0.5]}, "time_step_limit: fxf has none"),
        ("mamba2", {"use_bias": True}, "use_bias: fxf has Mamba2ForCausalLM with False, got True"),
    ],
    ids=str,
)
def test_what_fxf_does_not_have_is_one_line(name, changes, message):
    with pytest.raises(UserError, match=message) as error:
        huggingface._section({**theirs(name).config.to_dict(), **changes}, "a folder")
    assert "\n" not in str(error.value)
