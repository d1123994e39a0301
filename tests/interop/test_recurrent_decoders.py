"""Qwen3-Next and Mamba-2 with random weights, built by `transformers`: the same logits here and there, and back."""

import functools
import warnings

import jax
import numpy as np
import pytest

from closeness import assert_close
from fxf.base.errors import UserError
from fxf.interop import huggingface
from fxf.interop.architectures import ARCHITECTURES
from fxf.interop.rotary_decoders import pattern
from helpers import random_tokens
from pytorch_models import imported, libraries  # noqa: F401  It is a fixture.

pytest.importorskip("safetensors")

torch = transformers = None  # set by `libraries`

CONFIGS = {
    "qwen3_next": {
        **{"hidden_size": 12, "intermediate_size": 17, "num_attention_heads": 3, "num_key_value_heads": 1},
        **{"head_dim": 16, "max_position_embeddings": 128, "linear_conv_kernel_dim": 3, "linear_key_head_dim": 5},
        **{"linear_value_head_dim": 7, "linear_num_key_heads": 2, "linear_num_value_heads": 6},
        **{
            "num_experts": 5,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 8,
            "shared_expert_intermediate_size": 11,
        },
        **{"mlp_only_layers": [1], "experts_implementation": "eager"},
        **{"layer_types": ["linear_attention", "linear_attention", "full_attention"], "num_hidden_layers": 3},
        "attn_implementation": "eager",
    },
    "mamba2": {
        **{"hidden_size": 12, "num_hidden_layers": 2, "num_heads": 6, "head_dim": 4, "state_size": 5},
        **{"n_groups": 3, "conv_kernel": 3, "chunk_size": 4},
    },
}
CLASSES = {"qwen3_next": "Qwen3Next", "mamba2": "Mamba2"}
each = pytest.mark.parametrize("name", CONFIGS)
TOKENS = random_tokens((2, 70), 29)  # more than one chunk


@functools.cache
def theirs(name):
    """Returns a model whose weights are all random."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{CLASSES[name]}Config")(vocab_size=29, **CONFIGS[name])
    model = getattr(transformers, ARCHITECTURES[name].name)(config).eval()
    for parameter in model.parameters():
        torch.nn.init.uniform_(parameter, -0.4, 0.4)
    return model


@functools.cache
def loaded(name):
    return imported(theirs(name))


def logits_of(model, tokens):
    with torch.no_grad():
        return model(torch.tensor(tokens, dtype=torch.long)).logits.numpy()


@each
def test_logits_are_equal(name):
    expected = logits_of(theirs(name), TOKENS)
    assert expected.std() > 0.1
    assert_close(jax.jit(loaded(name).model.apply)(loaded(name).params, {"inputs": TOKENS}), expected)


@each
def test_a_model_goes_back_as_it_came(name, tmp_path):
    found = loaded(name)
    huggingface.save(tmp_path, found.config, found.params, first=None, end=1, padding=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        back = getattr(transformers, ARCHITECTURES[name].name).from_pretrained(tmp_path).eval()
    there = theirs(name).state_dict()
    assert back.state_dict().keys() == there.keys()
    for key, tensor in back.state_dict().items():
        np.testing.assert_array_equal(tensor, there[key], err_msg=key)
    assert_close(logits_of(back, TOKENS), logits_of(theirs(name), TOKENS))


def test_a_pattern_is_the_shortest_that_repeats():
    assert pattern(["a"] * 4) == "a"
    assert pattern(["a", "a", "b"] * 2 + ["a"]) == "2*(a), b"
    assert pattern(["b", "a", "a"]) == "b, 2*(a)"


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("qwen3_next", {"layer_types": ["full_attention"]}, "layer_types: expected 3 of linear_attention and full_att"),
        ("qwen3_next", {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "has .* with 0.25"),
        ("mamba2", {"time_step_limit": [0.0, 0.5]}, "time_step_limit: fxf has none"),
        ("qwen3_next", {"decoder_sparse_step": 2}, "decoder_sparse_step: fxf has Qwen3NextForCausalLM with 1, got 2"),
        ("mamba2", {"use_bias": True}, "use_bias: fxf has Mamba2ForCausalLM with False, got True"),
    ],
)
def test_what_fxf_does_not_have_is_one_line(name, changes, message):
    with pytest.raises(UserError, match=message) as error:
        huggingface._section({**theirs(name).config.to_dict(), **changes}, "here")
    assert "\n" not in str(error.value)
