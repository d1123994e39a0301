"""Valid and invalid folders of `transformers`, read or refused without `transformers` or torch."""

import dataclasses
import json
import shutil

import jax
import ml_dtypes
import numpy as np
import pytest
from flax.traverse_util import unflatten_dict

from closeness import assert_close
from fxf.base.errors import UserError
from fxf.base.weights import flatten
from fxf.data.tokenizer import train_tokenizer
from fxf.interop import huggingface, peft
from fxf.interop.architectures import ARCHITECTURES, TEXT, architectures
from fxf.interop.config_json import read_config, write_config
from fxf.interop.weights_file import read_weights, write_tensors
from fxf.models import MODELS
from fxf.models.encoder_decoder import EncoderDecoderConfig
from fxf.models.lora import LoraConfig, lora
from fxf.models.transformer_lm import TransformerLMConfig, transformer_lm
from helpers import one_device, random_params, refused, table, values

pytest.importorskip("safetensors")

VOCAB_SIZE = 11
LETTERS = train_tokenizer("character", VOCAB_SIZE, ["abcdef"])
TOKENS = {"first": 0, "end": 2, "padding": 1}
MARIAN_SIZES = {"n_layers": 1, "d_model": 6, "d_ff": 7, "n_heads": 3, "max_len": 9, "activation": "silu"}
SIZES = {"n_layers": 2, "d_model": 6, "d_ff": 7, "n_heads": 3, "n_kv_heads": 1, "max_len": 5}
ROTARY = ARCHITECTURES["llama"].section | SIZES | {"activation": "silu", "final_bias": False}
CLASSES = {name: ROTARY | keys for keys, name in table("sections of rotary decoders")}


def made(config, model="transformer_lm"):
    """Returns a `model` section and random params."""
    return config, random_params(MODELS[model].make(config, VOCAB_SIZE).spec)


def marian():
    return made(EncoderDecoderConfig(**ARCHITECTURES["marian"].section | MARIAN_SIZES), "encoder_decoder")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Folders with a small model of each class."""
    sections = {name: TransformerLMConfig(**keys) for name, keys in CLASSES.items()}
    sections |= {name: read_config(ARCHITECTURES[name], keys, "here") for keys, name in table("small GPTs")}
    found = {name: tmp_path_factory.mktemp(name) for name in sections}
    for name, config in sections.items():
        huggingface.save(found[name], *made(config), **TOKENS, tokenizer=LETTERS.to_json())
    return found


@pytest.fixture
def folder(folders, tmp_path):
    """A folder with a small GPT-2 that tests modify."""
    return shutil.copytree(folders["gpt2"], tmp_path / "gpt2")


def assert_refused(folder, message):
    with pytest.raises(UserError, match=message) as caught:
        huggingface.load(folder)
    assert "\n" not in str(caught.value)


def change_json(path, changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def change_tensors(folder, change):
    path = folder / huggingface.TENSORS_FILE
    tensors = read_weights(path)
    write_tensors(path, {**tensors, **change(tensors)}, {})


REFUSING = ("gpt2", "llama", "mistral", "qwen2", "gemma3_text", "gemma2")
WRONG = [(name, *case) for name in REFUSING for case in refused(f"config.json of {name}")]


@pytest.mark.parametrize(("name", "changes", "message"), WRONG)
def test_a_config_that_fxf_does_not_support_is_one_line(folders, tmp_path, name, changes, message):
    folder = shutil.copytree(folders[name], tmp_path / name)
    change_json(folder / huggingface.CONFIG_FILE, changes)
    assert_refused(folder, message)


def test_wrong_or_missing_tensors_are_one_line(folder):
    change_tensors(folder, lambda x: {"lm_head.weight": x["transformer.wte.weight"] * 2})
    assert_refused(folder, r"gpt2: lm_head.weight differs from transformer.wte.weight, but config.json ties them$")
    right = read_weights(folder / huggingface.TENSORS_FILE)
    right["lm_head.weight"] = right["transformer.wte.weight"]
    numbers, shape = "expected floating-point numbers, F64,", r"shape \[\]; expected \[6\]"
    wrong = (np.int8, f"type I8; {numbers}"), (ml_dtypes.float8_e4m3fn, f"type F8_E4M3; {numbers}")
    for bias, what in (*((np.zeros(6, kind), what) for kind, what in wrong), (np.float32(0), shape)):
        write_tensors(folder / huggingface.TENSORS_FILE, {**right, "transformer.ln_f.bias": bias}, {})
        assert_refused(folder, rf"gpt2: transformer.ln_f.bias has {what}")
    (folder / huggingface.INDEX_FILE).write_text('{"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}')
    assert_refused(folder, r"gpt2: transformer.ln_f.bias has")  # in the one file, which comes first
    tensors = (folder / huggingface.TENSORS_FILE).rename(folder / "one.safetensors")
    assert_refused(folder, r"two.safetensors: No such file or directory$")
    (folder / huggingface.INDEX_FILE).write_text("{}")
    assert_refused(folder, r"gpt2: transformer.wte.weight is absent")
    (folder / huggingface.INDEX_FILE).unlink()
    tensors.rename(folder / "pytorch_model.bin")
    assert_refused(folder, r"gpt2: model.safetensors is missing; fxf does not read pytorch_model.bin$")


def test_a_marians_stored_positions_must_be_its_computed_ones(tmp_path):
    config, params = marian()
    huggingface.save(tmp_path, config, params, **TOKENS)
    angles = np.arange(9)[:, None] / 10000 ** (np.arange(0, 6, 2) / 6)
    positions = np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(ml_dtypes.bfloat16)
    change_tensors(tmp_path, lambda _: {"model.encoder.embed_positions.weight": positions})
    jax.tree.map(np.testing.assert_array_equal, huggingface.load(tmp_path).params, params)
    change_json(tmp_path / huggingface.CONFIG_FILE, {"decoder_layers": 3})
    assert_refused(tmp_path, "decoder_layers: fxf has one model.n_layers; expected 1, got 3")


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_is_read_exactly(folder, kind):
    before = np.asarray(huggingface.load(folder).params["norm"]["scale"])
    change_tensors(folder, lambda tensors: {key: x.astype(kind) for key, x in tensors.items()})
    after = huggingface.load(folder).params["norm"]["scale"]
    np.testing.assert_array_equal(after, before.astype(kind).astype(np.float32), strict=True)


def test_a_class_like_another_differs_only_as_its_table_says():
    table = '[twin]\nlike = "llama"\nclass = "Twin"\ntensors = { "norm/scale" = "model.ln.weight" }'
    twin, llama = architectures(f"{TEXT}\n{table}")["twin"], ARCHITECTURES["llama"]
    assert twin.tensors == llama.tensors | {"norm/scale": "model.ln.weight"}
    assert dataclasses.replace(twin, model_type="llama", name=llama.name, tensors=llama.tensors) == llama


@pytest.mark.parametrize("name", CLASSES)
def test_a_rotary_decoder_round_trips_on_the_devices_of_its_layout(name, folders):
    layout = one_device()
    config, params = made(TransformerLMConfig(**CLASSES[name]))
    loaded = huggingface.load(folders[name], layout.weights)
    assert loaded.huggingface["architectures"] == [ARCHITECTURES[name].name]
    assert dataclasses.replace(loaded.config, n_kv_heads=1, head_dim=config.head_dim) == config
    jax.tree.map(np.testing.assert_array_equal, loaded.params, params)
    assert json.loads((folders[name] / huggingface.TOKENIZER_CONFIG_FILE).read_text())["padding_side"] == "left"
    assert jax.tree.all(jax.tree.map(lambda x, s: x.sharding == s, loaded.params, layout.weights(loaded.model.spec)))


@pytest.mark.parametrize("name", ["gemma2", "gemma3_text"])
def test_a_gemma_without_windows_is_exported_with_the_window_of_its_class(name):
    config = TransformerLMConfig(**CLASSES[name] | {"window": 0, "global_every": 0, "local_rope_theta": 0.0})
    written = write_config(config)
    assert (written.record["sliding_window"], written.section.window) == (config.max_len, 0)


def test_a_gpt_without_some_biases_is_one_with_biases_of_zero(folder, tmp_path):
    config = dataclasses.replace(huggingface.load(folder).config, attention_bias="output", feed_forward_bias=False)
    config, params = made(config)
    huggingface.save(tmp_path, config, params, **TOKENS)
    found = flatten(huggingface.load(tmp_path).params)
    for path, value in flatten(params).items():
        np.testing.assert_array_equal(found.pop(path), value)
    assert found and all(path.endswith("_bias") and not np.any(value) for path, value in found.items())


@pytest.mark.parametrize(("changes", "message"), refused("decoders that no class computes"))
def test_a_rotary_decoder_without_a_class_is_one_line_that_names_the_difference(changes, message):
    with pytest.raises(UserError, match=rf"^{message}"):
        write_config(TransformerLMConfig(**ROTARY | changes))


@pytest.mark.parametrize(("changes", "expected"), table("alias keys"))
def test_alias_and_missing_keys_are_read_as_transformers_reads_them(folders, changes, expected):
    name, expected = changes.pop("name"), values(expected)
    record = json.loads((folders[name] / huggingface.CONFIG_FILE).read_text()) | changes
    for key in record.pop("older", "").split():
        del record[key]
    section = read_config(ARCHITECTURES[name], record, "here")
    assert {key: getattr(section, key) for key in expected} == expected


@pytest.mark.parametrize(("changes", "expected"), table("tokens that end a text"))
def test_the_tokens_that_end_a_text_are_those_of_generation_or_else_of_the_config(folder, changes, expected):
    change_json(folder / huggingface.CONFIG_FILE, {"eos_token_id": changes.pop("of_config")})
    (folder / huggingface.GENERATION_FILE).write_text(json.dumps(changes))
    assert str(huggingface.load(folder).end_tokens) == expected


@pytest.mark.parametrize(("tokens", "expected"), table("special tokens of a folder"))
def test_files_name_the_same_special_tokens_and_null_for_missing_ones(folder, tmp_path, tokens, expected):
    loaded = huggingface.load(folder)
    huggingface.save(tmp_path, loaded.config, loaded.params, **tokens, tokenizer=LETTERS.to_json())
    names = ("config", "generation_config", "tokenizer_config")
    record, generation, config = (json.loads((tmp_path / f"{name}.json").read_text()) for name in names)
    expected = values(expected)
    assert {key: record[key] for key in expected} == {key: generation[key] for key in expected} == expected
    assert generation["max_length"] == loaded.config.max_len + 1
    texts = {key.removesuffix("_id"): n if n is None else LETTERS.name(n) for key, n in expected.items()}
    texts |= {"unk_token": "<unk>", "padding_side": "right"}
    assert {key: config[key] for key in texts} == texts
    assert huggingface.load(tmp_path).tokenizer.encode_special_tokens


def test_a_folder_of_an_older_export_is_read_with_its_tokenizer(tmp_path):
    """It has is_causal, no generation_config.json, and the run's tokenizer.json."""
    config, params = marian()
    tokenizer = train_tokenizer("word", VOCAB_SIZE, ["a b c"])
    cut = {"truncation": {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0}}
    text = json.dumps(json.loads(tokenizer.to_json()) | cut)
    huggingface.save(tmp_path, config, params, **TOKENS, tokenizer=text)
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


def test_adapters_are_those_of_the_class_of_their_base(tmp_path):
    base = TransformerLMConfig(**ROTARY)
    sections = [LoraConfig(rank=rank, weights="*/query,*/key,*/value") for rank in (2, 6)]
    model, of_sums = (lora(transformer_lm(base, VOCAB_SIZE), section) for section in sections)
    params = random_params(model.spec)
    (tmp_path / "config.json").write_text('{"model_type": "phi3"}')  # with queries, keys and values in one matrix
    peft.save(tmp_path / "peft", base, sections[0], params, str(tmp_path))
    found = peft.load(tmp_path / "peft", base, sections[1], of_sums.spec, str(tmp_path))
    assert_close(of_sums.to_plain({**params, **unflatten_dict(found, sep="/")}), model.to_plain(params))
