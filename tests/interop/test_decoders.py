"""Decoders with random weights built by `transformers` have equal logits in fxf, in both directions."""

import dataclasses
import functools
import warnings

import jax
import pytest

from fxf.base.errors import UserError
from fxf.interop import huggingface
from fxf.interop.architectures import ARCHITECTURES
from fxf.interop.config_json import read_config, write_config
from fxf.models.transformer_lm import transformer_lm
from fxf.testing import assert_consistent
from helpers import random_tokens, refused, some, table
from pytorch_models import assert_equal, imported, libraries  # noqa: F401  It is a fixture.

pytest.importorskip("safetensors")

torch = transformers = None  # set by `libraries`

SIZES = {"hidden_size": 12, "intermediate_size": 17, "num_hidden_layers": 2, "num_attention_heads": 3,
         "num_key_value_heads": 1, "max_position_embeddings": 128, "bos_token_id": 1, "eos_token_id": None,
         "pad_token_id": None}  # fmt: skip
CASES = [(*text.rsplit(" ", 1), keys) for keys, text in table("decoders of transformers")]
CLASSES, CONFIGS = {name: kind for name, kind, _ in CASES}, {name: keys for name, _, keys in CASES}
FADING = ("qwen3_next", "mamba2")  # read in chunks of 64 tokens


def eager(name):
    """Returns the attention that `transformers` must use."""
    has_experts = {"num_experts", "num_local_experts", "n_routed_experts"} & {*CONFIGS[name]}
    return {"attn_implementation": "eager"} | ({"experts_implementation": "eager"} if has_experts else {})


@functools.cache
def theirs(name):
    """Returns a model with random weights, biases and norms, large enough that tokens matter."""
    torch.manual_seed(0)
    kind, size = name.partition(":")[0], 0.4 if name in FADING else 0.9
    config = getattr(transformers, f"{CLASSES[name]}Config")(vocab_size=29, **SIZES | CONFIGS[name], **eager(name))
    model = getattr(transformers, ARCHITECTURES[kind].name)(config).eval()
    for tensor in (*model.parameters(), *(x for key, x in model.named_buffers() if key.endswith("correction_bias"))):
        torch.nn.init.uniform_(tensor, -size, size)
    if kind.startswith("gemma"):  # scales are 1 larger: otherwise tied embeddings make each token predict itself
        model.model.norm.weight.data -= 1
    for block in model.model.layers if kind == "gpt_oss" else ():
        block.mlp.experts.gate_up_proj.data *= 5  # some activations are clamped at 7
    return model


@functools.cache
def ours(name):
    return imported(theirs(name))


def tokens_of(name):
    return random_tokens((2, 70 if name in FADING else 8), 29)


def logits_of(model, name, tokens=None):
    with torch.no_grad():
        return model(torch.tensor(tokens_of(name) if tokens is None else tokens, dtype=torch.long)).logits.numpy()


@some("name", CONFIGS, ("llama", "gemma3_text", "gpt_oss", "deepseek_v3", *FADING))
def test_logits_are_equal(name):
    found = jax.jit(ours(name).model.apply)(ours(name).params, {"inputs": tokens_of(name)})
    assert_equal(found, logits_of(theirs(name), name))


def test_a_text_beyond_the_training_length_needs_a_larger_max_len_for_its_factors():
    loaded, tokens = ours("phi3"), random_tokens((2, 13), 29)
    with pytest.raises(UserError, match=r"got 13; model\.rope_factors are for model\.max_len 8$"):
        loaded.model.apply(loaded.params, {"inputs": tokens})
    for max_len, n in ((8, 8), (128, 13)):
        model = transformer_lm(dataclasses.replace(loaded.config, max_len=max_len), 29)
        found = jax.jit(model.apply)(loaded.params, {"inputs": tokens[:, :n]})
        assert_equal(found, logits_of(theirs("phi3"), "phi3", tokens[:, :n]))


@some("name", [name for name in CONFIGS if not name.startswith("deepseek")], ("smollm3", "gpt_oss", "mamba2", "phi3"))
def test_transformers_reads_an_export(name, tmp_path):
    huggingface.save(tmp_path, ours(name).config, ours(name).params, first=1, end=2, padding=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, **eager(name)).eval()
    assert_equal(logits_of(found, name), logits_of(theirs(name), name))


@pytest.mark.thorough
def test_gpt_oss_decodes_with_a_cache_as_without_alone_and_with_padding():
    assert_consistent(ours("gpt_oss").model, ours("gpt_oss").params, {"inputs": tokens_of("gpt_oss")})


def test_without_layer_names_qwen3_next_has_attention_at_its_interval():
    record = theirs("qwen3_next").config.to_dict() | {"layer_types": None, "full_attention_interval": 3}
    assert read_config(ARCHITECTURES["qwen3_next"], record, "a folder") == ours("qwen3_next").config


@pytest.mark.parametrize(("changes", "message"), refused("mixtures that transformers lacks"))
def test_a_mixture_that_transformers_lacks_is_not_exported(changes, message):
    config = ours("mixtral").config
    own = {"feed_forward": {**config.layers["feed_forward"], **changes}}
    with pytest.raises(UserError, match=message):
        write_config(dataclasses.replace(config, layers=own))


@pytest.mark.parametrize(("changes", "message"), refused("decoders that fxf does not support"))
def test_an_unsupported_config_is_one_line(changes, message):
    name = changes.pop("name")
    with pytest.raises(UserError, match=message) as error:
        read_config(ARCHITECTURES[name], {**theirs(name).config.to_dict(), **changes}, "a folder")
    assert "\n" not in str(error.value)
