"""Folders of `transformers` that hold something wrong; neither `transformers` nor torch is needed to refuse them."""

import dataclasses
import json
import math

import jax
import ml_dtypes
import numpy as np
import pytest

from fxf.base.errors import UserError
from fxf.base.weights import flatten
from fxf.data.tokenizer import train_tokenizer
from fxf.interop import huggingface
from fxf.interop.architectures import ARCHITECTURES
from fxf.interop.config_json import read_config, write_config
from fxf.interop.weights_file import read_weights, write_tensors
from fxf.models import MODELS
from fxf.models.encoder_decoder import EncoderDecoderConfig
from fxf.models.transformer_lm import TransformerLMConfig
from helpers import one_device, random_params, refused, table, values

pytest.importorskip("safetensors")

SIZES = {"n_layer": 1, "n_embd": 6, "n_inner": 7, "n_head": 3, "n_positions": 5, "activation_function": "gelu_new"}
RATES = {"layer_norm_epsilon": 1e-5, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
VOCAB_SIZE = 11
MARIAN_SIZES = {"n_layers": 1, "d_model": 6, "d_ff": 7, "n_heads": 3, "max_len": 9, "activation": "silu"}


@pytest.fixture
def folder(tmp_path):
    """A folder with a small GPT-2."""
    config = read_config(ARCHITECTURES["gpt2"], {**SIZES, **RATES}, "here")
    params = random_params(MODELS["transformer_lm"][1](config, VOCAB_SIZE).spec)
    huggingface.save(tmp_path / "gpt2", config, params, first=0, end=2, padding=1)
    huggingface.load(tmp_path / "gpt2")
    return tmp_path / "gpt2"


def assert_refused(folder, message):
    with pytest.raises(UserError, match=message) as caught:
        huggingface.load(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("changes", "message"), refused("config.json of gpt2"))
def test_a_config_with_a_wrong_value_is_one_line(folder, changes, message):
    path = folder / huggingface.CONFIG_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    assert_refused(folder, message)


def change_tensors(folder, change):
    path = folder / huggingface.TENSORS_FILE
    tensors = read_weights(path)
    change(tensors)
    write_tensors(path, tensors, {})


def test_a_tensor_that_is_no_weights_is_named(folder):
    change_tensors(folder, lambda tensors: tensors.update({"transformer.ln_f.bias": np.zeros(6, np.int8)}))
    assert_refused(folder, r"gpt2: transformer.ln_f.bias has type int8; expected floating-point numbers")


def test_weights_in_a_pickle_are_not_read(folder):
    (folder / huggingface.TENSORS_FILE).rename(folder / "pytorch_model.bin")
    assert_refused(folder, r"gpt2: fxf reads model.safetensors, which is absent, and not pytorch_model.bin$")


def test_positions_of_a_marian_are_those_that_are_computed(tmp_path):
    config = EncoderDecoderConfig(**ARCHITECTURES["marian"].section | MARIAN_SIZES)
    params = random_params(MODELS["encoder_decoder"].make(config, VOCAB_SIZE).spec)
    huggingface.save(tmp_path, config, params, first=0, end=2, padding=1)
    angles = np.arange(9)[:, None] / 10000 ** (np.arange(0, 6, 2) / 6)
    name, table = "model.encoder.embed_positions.weight", np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    change_tensors(tmp_path, lambda tensors: tensors.update({name: table.astype(ml_dtypes.bfloat16)}))
    jax.tree.map(np.testing.assert_array_equal, huggingface.load(tmp_path).params, params)
    path = tmp_path / huggingface.CONFIG_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | {"decoder_layers": 3}))
    assert_refused(tmp_path, "decoder_layers: fxf has one model.n_layers; expected 1, got 3")


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_is_read_as_it_is(folder, kind):
    before = huggingface.load(folder).params["norm"]["scale"]
    change_tensors(folder, lambda tensors: tensors.update({k: x.astype(kind) for k, x in tensors.items()}))
    after = huggingface.load(folder).params["norm"]["scale"]
    assert after.dtype == np.float32
    np.testing.assert_array_equal(after, np.asarray(before).astype(kind).astype(np.float32))


# A `model` section of each class, as small as the class allows.
ROTARY = {"n_layers": 2, "d_model": 6, "d_ff": 7, "n_heads": 3, "n_kv_heads": 1, "max_len": 5, "norm": "rms",
          "norm_epsilon_in": "variance", "positions": "rotary", "gated": True, "activation": "silu",
          "attention_bias": "none", "feed_forward_bias": False, "final_bias": False}  # fmt: skip
CLASSES = {
    "gemma": {"zero_centered_scale": True, "scaled_embeddings": True, "head_dim": 4, "activation": "gelu_tanh",
              "tied_embeddings": True, "final_bias": True},
    "olmo2": {"block": "output_norm", "qk_norm": True, "qk_norm_joint": True, "rope_factor": 4.0,
              "rope_trained_len": 64, "rope_ramp": "yarn", "query_scale": 2**-0.5 * (0.1 * math.log(4) + 1) ** 2},
    "smollm3": {"blocks": "attention+feed_forward, nope+feed_forward",
                "layers": {"nope": {"kind": "attention", "positions": "none"}}},
    "llama": {"n_heads": 4, "head_dim": 4, "rope_theta": 500.0, "rope_factor": 8.0, "rope_trained_len": 64},
    "mistral": {"window": 3, "rope_factor": 2.0},
    "qwen2": {"attention_bias": "qkv", "window": 3, "global_every": 2},
    "qwen3": {"qk_norm": True, "tied_embeddings": True, "final_bias": True},
    "gemma2": {"block": "sandwich", "zero_centered_scale": True, "scaled_embeddings": True, "head_dim": 4, "window": 3,
               "global_every": 2, "query_scale": 0.5, "attention_softcap": 5.0, "tied_embeddings": True,
               "final_bias": True, "activation": "gelu_tanh"},
    "gemma3_text": {"block": "sandwich", "zero_centered_scale": True, "scaled_embeddings": True, "qk_norm": True,
                    "window": 3, "global_every": 2, "local_rope_theta": 50.0, "rope_factor": 8.0, "query_scale": 0.5,
                    "tied_embeddings": True, "final_bias": True, "activation": "gelu_tanh"},
}  # fmt: skip


def made(**changes):
    """Returns a `model` section and random params."""
    config = TransformerLMConfig(**changes)
    return config, random_params(MODELS["transformer_lm"].make(config, VOCAB_SIZE).spec)


@pytest.mark.parametrize("name", CLASSES)
def test_a_rotary_decoder_comes_back(name, tmp_path):
    config, params = made(**ROTARY | CLASSES[name])
    huggingface.save(tmp_path, config, params, first=0, end=2, padding=1)
    loaded = huggingface.load(tmp_path)
    assert loaded.huggingface["architectures"] == [ARCHITECTURES[name].name]
    assert dataclasses.replace(loaded.config, n_kv_heads=1, head_dim=config.head_dim) == config
    jax.tree.map(np.testing.assert_array_equal, loaded.params, params)


@pytest.mark.parametrize("name", ["gemma2", "gemma3_text"])
def test_a_gemma_without_windows_is_written_with_the_one_that_its_class_asks_for(name, tmp_path):
    config, params = made(**ROTARY | CLASSES[name] | {"window": 0, "global_every": 0, "local_rope_theta": 0.0})
    huggingface.save(tmp_path, config, params, first=0, end=2, padding=1)
    loaded = huggingface.load(tmp_path)
    assert loaded.huggingface["sliding_window"] == config.max_len
    assert loaded.config.window == 0


def test_a_gpt_without_biases_is_one_with_biases_of_zero(folder, tmp_path):
    config = dataclasses.replace(huggingface.load(folder).config, attention_bias="none", feed_forward_bias=False)
    params = random_params(MODELS["transformer_lm"].make(config, VOCAB_SIZE).spec)
    huggingface.save(tmp_path, config, params, first=0, end=2, padding=1)
    found = flatten(huggingface.load(tmp_path).params)
    for path, value in flatten(params).items():
        np.testing.assert_array_equal(found.pop(path), value)
    assert found and all(path.endswith("_bias") and not np.any(value) for path, value in found.items())


@pytest.mark.parametrize(("changes", "message"), refused("decoders that no class computes"))
def test_a_rotary_decoder_that_no_class_computes_is_one_line_that_names_what_differs(changes, message):
    with pytest.raises(UserError, match=rf"^{message}"):
        write_config(made(**ROTARY | changes)[0])


@pytest.fixture(scope="module")
def rotary_folders(tmp_path_factory):
    """Folders with a small model of each class."""
    folders = {name: tmp_path_factory.mktemp(name) for name in CLASSES}
    for name, path in folders.items():
        huggingface.save(path, *made(**ROTARY | CLASSES[name]), first=0, end=2, padding=1)
    return folders


@pytest.mark.parametrize(
    ("name", "changes", "message"), [(name, *case) for name in CLASSES for case in refused(f"config.json of {name}")]
)
def test_a_rotary_decoder_that_fxf_does_not_have_is_one_line(rotary_folders, tmp_path, name, changes, message):
    for file in rotary_folders[name].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    path = tmp_path / huggingface.CONFIG_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    assert_refused(tmp_path, message)


def test_what_an_older_config_leaves_out_has_the_values_of_its_class(rotary_folders, tmp_path):
    """As the first releases of these models were written."""
    left_out = {
        "llama": ["num_key_value_heads", "head_dim", "rope_theta", "rope_scaling", "attention_bias"],
        "qwen2": ["layer_types", "rope_scaling", "head_dim", "attention_bias"],
        "gemma2": ["layer_types", "tie_word_embeddings", "rope_scaling", "final_logit_softcapping"],
        "gemma3_text": ["layer_types", "tie_word_embeddings", "rope_theta", "rope_local_base_freq"],
    }
    sections = {}
    for name, keys in left_out.items():
        config = json.loads((rotary_folders[name] / huggingface.CONFIG_FILE).read_text())
        config = {key: value for key, value in config.items() if key not in keys}
        sections[name] = read_config(ARCHITECTURES[config["model_type"]], config, "here")
    assert (sections["llama"].n_kv_heads, sections["llama"].head_dim) == (4, 1)
    assert sections["llama"].rope_factor == 1 and sections["qwen2"].global_every == 0
    gemma = sections["gemma2"]
    assert (gemma.global_every, gemma.logit_softcap, gemma.tied_embeddings) == (2, 30.0, True)
    gemma = sections["gemma3_text"]
    assert (gemma.global_every, gemma.rope_theta, gemma.local_rope_theta, gemma.rope_factor) == (6, 1e6, 1e4, 8.0)


@pytest.mark.parametrize(("changes", "expected"), table("keys that stand for others"))
def test_keys_that_stand_for_others_are_read_as_transformers_reads_them(rotary_folders, changes, expected):
    folder, expected = rotary_folders[changes.pop("name")], values(expected)
    record = json.loads((folder / huggingface.CONFIG_FILE).read_text()) | changes
    section = read_config(ARCHITECTURES[record["model_type"]], record, "here")
    assert {key: getattr(section, key) for key in expected} == expected


def test_a_file_that_an_index_names_and_that_is_absent_is_one_line(folder):
    (folder / huggingface.TENSORS_FILE).rename(folder / "one.safetensors")
    index = {"weight_map": {"lm_head.weight": "one.safetensors", "more": "two.safetensors"}}
    (folder / huggingface.INDEX_FILE).write_text(json.dumps(index))
    assert_refused(folder, r"two.safetensors: No such file or directory; did you mean 'one.safetensors'\?")


def test_params_are_put_where_the_layout_says(rotary_folders):
    layout = one_device()
    loaded = huggingface.load(rotary_folders["llama"], layout)
    shardings = layout.weights(loaded.model.spec)
    assert jax.tree.map(lambda x, sharding: x.sharding == sharding, loaded.params, shardings)
    assert all(isinstance(x.sharding, jax.sharding.NamedSharding) for x in jax.tree.leaves(loaded.params))


@pytest.mark.parametrize(
    ("of_config", "of_generation", "expected"),
    [
        (2, {"eos_token_id": [7, 8, 3]}, (7, 8, 3)),  # as in Llama 3
        ([2, 5], {"pad_token_id": 2}, (2, 5)),
        (2, {"eos_token_id": None}, ()),
        (-1, None, ()),  # as exports were written where no token ends a text
    ],
)
def test_the_tokens_that_end_a_text_are_those_of_generation_or_else_of_the_config(
    folder, of_config, of_generation, expected
):
    config, generation = folder / huggingface.CONFIG_FILE, folder / huggingface.GENERATION_FILE
    config.write_text(json.dumps(json.loads(config.read_text()) | {"eos_token_id": of_config}))
    generation.unlink()
    if of_generation:
        generation.write_text(json.dumps(of_generation))
    assert huggingface.load(folder).end_tokens == expected


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ({"first": 0, "end": 2, "padding": 1}, {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1}),
        ({"first": 4, "end": 3, "padding": None}, {"bos_token_id": 4, "eos_token_id": 3, "pad_token_id": 3}),
        ({"first": None, "end": None, "padding": 1}, {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 1}),
    ],
)
def test_files_name_the_same_special_tokens_and_null_where_there_is_none(folder, tmp_path, tokens, expected):
    loaded, tokenizer = huggingface.load(folder), train_tokenizer("character", VOCAB_SIZE, ["abcdef"])
    huggingface.save(tmp_path, loaded.config, loaded.params, **tokens, tokenizer=tokenizer.to_json())
    names = ("config", "generation_config", "tokenizer_config")
    record, generation, config = (json.loads((tmp_path / f"{name}.json").read_text()) for name in names)
    assert {key: record[key] for key in expected} == {key: generation[key] for key in expected} == expected
    assert generation["max_length"] == loaded.config.max_len + 1
    texts = {key.removesuffix("_id"): n if n is None else tokenizer.name(n) for key, n in expected.items()}
    assert {key: config[key] for key in texts} == texts and config["unk_token"] == "<unk>"
    assert huggingface.load(tmp_path).tokenizer.encode_special_tokens


def test_a_folder_of_an_older_export_is_read(tmp_path):
    """It says is_causal, has no generation_config.json, and its tokenizer.json is that of the run."""
    config = EncoderDecoderConfig(**ARCHITECTURES["marian"].section | MARIAN_SIZES)
    params = random_params(MODELS["encoder_decoder"].make(config, VOCAB_SIZE).spec)
    tokenizer = train_tokenizer("word", VOCAB_SIZE, ["a b c"])
    huggingface.save(tmp_path, config, params, first=0, end=2, padding=1, tokenizer=tokenizer.to_json())
    (tmp_path / huggingface.GENERATION_FILE).unlink()
    path = tmp_path / huggingface.CONFIG_FILE
    record = json.loads(path.read_text()) | {"is_causal": True}
    del record["forced_eos_token_id"], record["bos_token_id"]
    path.write_text(json.dumps(record))
    (tmp_path / huggingface.TOKENIZER_CONFIG_FILE).write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    loaded = huggingface.load(tmp_path)
    assert loaded.config == config and loaded.end_tokens == (2,)
    jax.tree.map(np.testing.assert_array_equal, loaded.params, params)
    assert loaded.tokenizer.encode("a b").ids == tokenizer.encode("a b")


def test_the_tokenizer_goes_with_its_model(folder, tmp_path):
    tokenizer = train_tokenizer("bpe", 270, ["low lower lowest"] * 9)
    loaded = huggingface.load(folder)
    assert loaded.tokenizer is None
    text = tokenizer.to_json()
    huggingface.save(tmp_path, loaded.config, loaded.params, first=0, end=2, padding=1, tokenizer=text)
    found = huggingface.load(tmp_path).tokenizer
    assert found.encode("lower low").ids == tokenizer.encode("lower low")
    (tmp_path / "tokenizer.json").write_text("{")
    assert_refused(tmp_path, "tokenizer.json: not a tokenizer file: ")
