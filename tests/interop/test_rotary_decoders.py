"""Llama and others with random weights, built by `transformers`: the same logits here and there."""

import functools
import warnings

import jax
import pytest

from fxf.interop import huggingface
from fxf.interop.architectures import ARCHITECTURES
from helpers import random_tokens
from pytorch_models import assert_equal, libraries  # noqa: F401  It is a fixture.

pytest.importorskip("safetensors")

torch = transformers = None  # set by `libraries`

SIZES = {"vocab_size": 29, "hidden_size": 12, "intermediate_size": 17, "num_hidden_layers": 2, "num_attention_heads": 3,
         "num_key_value_heads": 1, "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": None}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "rope_theta": 300.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 300.0, "factor": 4.0, "original_max_position_embeddings": 64}
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
}  # fmt: skip
CLASSES = {"gemma": "Gemma", "phi3": "Phi3", "olmo2": "Olmo2", "smollm3": "SmolLM3", "llama": "Llama",
           "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3", "gemma2": "Gemma2",
           "gemma3_text": "Gemma3Text"}  # fmt: skip


def some(*names):
    """Returns the mark of a test that takes these models each time, and the others where all tests are run."""
    marks = {name: () if name in names else pytest.mark.thorough for name in CONFIGS}
    return pytest.mark.parametrize("name", [pytest.param(name, marks=mark) for name, mark in marks.items()])


TOKENS = random_tokens((2, 11), 29)


@functools.cache
def theirs(name):
    """Returns a model whose weights, biases and norms are all random, and so large that other tokens mean others."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{CLASSES[name]}Config")(**SIZES | CONFIGS[name], attn_implementation="eager")
    model = getattr(transformers, ARCHITECTURES[name].name)(config).eval()
    for parameter in model.parameters():
        torch.nn.init.uniform_(parameter, -0.9, 0.9)
    if name.startswith("gemma"):  # whose scales are 1 more: else each token, read from the same table, begets itself
        model.model.norm.weight.data -= 1
    return model


def logits_of(model, tokens):
    with torch.no_grad():
        return model(torch.tensor(tokens, dtype=torch.long)).logits.numpy()


@functools.cache
def saved(name, folder):
    """Returns the model from its folder, written by `transformers` in several files."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs(name).save_pretrained(folder, max_shard_size=3000)
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    return huggingface.load(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@some("llama", "qwen2", "gemma2", "gemma3_text", "olmo2", "smollm3")
def test_logits_are_equal(name, folder):
    loaded, expected = saved(name, folder / name), logits_of(theirs(name), TOKENS)
    assert_equal(jax.jit(loaded.model.apply)(loaded.params, {"inputs": TOKENS}), expected)


@some("smollm3")
def test_transformers_reads_what_is_written(name, folder, tmp_path):
    loaded = saved(name, folder / f"{name}_to_write")
    huggingface.save(tmp_path, loaded.config, loaded.params, first=1, end=2, padding=None)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager")
    assert_equal(logits_of(again, TOKENS), logits_of(theirs(name), TOKENS))
