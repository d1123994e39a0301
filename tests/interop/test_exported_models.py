"""Exported models and adapters, read by `transformers` with its defaults, have equal tokens, logits and answers.

Adapter folders are PEFT's: added to models of `transformers`, they give fxf's results.
"""

import copy
import json
import math
import re
import warnings

import jax
import numpy as np
import pytest
from flax.traverse_util import unflatten_dict

import fxf
from closeness import assert_close
from fxf.base.errors import UserError
from fxf.base.weights import flatten
from fxf.data.tokenizer import BOS, EOS, PAD, train_tokenizer
from fxf.interop import huggingface, peft
from fxf.interop.architectures import ARCHITECTURES
from fxf.interop.config_json import write_config
from fxf.interop.tokenizer_json import tokenizer_json
from fxf.interop.weights_file import read_weights, write_tensors
from fxf.models.lora import LORA, LoraConfig, lora
from fxf.models.transformer_lm import TransformerLMConfig, transformer_lm
from helpers import random_params, random_tokens, refused, some, table
from pytorch_models import LENGTH, VOCAB_SIZE, libraries, logits_of, ours, theirs  # noqa: F401  One is a fixture.

pytest.importorskip("safetensors")

torch = transformers = None  # set by `libraries`

AROUND = {**dict.fromkeys(("gpt2", "llama"), (BOS, None)), **dict.fromkeys(("bert", "distilbert"), (BOS, EOS))}
AROUND["marian"] = None, EOS
TEXTS = ["the cat sat on the mat", "a <eos> dog"]
QUICK = ("marian",)


def read(name, folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(transformers, ARCHITECTURES[name].name).from_pretrained(folder).eval()


def compare(found, expected):
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


@some("name", AROUND, QUICK)
def test_logits_are_equal_alone_and_in_a_padded_batch(name, tmp_path):
    loaded, tokenizer = ours(name), train_tokenizer("word", VOCAB_SIZE, TEXTS)
    text = tokenizer_json(tokenizer, AROUND[name], blanks=name.endswith("bert"))
    huggingface.save(tmp_path, loaded.config, loaded.params, first=BOS, end=EOS, padding=PAD, tokenizer=text)
    model, reader = read(name, tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    first, last = ([] if token is None else [token] for token in AROUND[name])
    rows = [[*first, *tokenizer.encode(text), *last] for text in TEXTS]
    assert reader(TEXTS).input_ids == rows
    assert (reader.bos_token_id, reader.eos_token_id, reader.pad_token_id) == (BOS, EOS, PAD)
    assert (model.config.eos_token_id, model.config.pad_token_id) == (EOS, PAD)
    batch = dict(reader(TEXTS, padding=True, return_tensors="pt"))
    real = batch["attention_mask"].numpy() == 1
    target = random_tokens((len(TEXTS), 5), VOCAB_SIZE)
    if name == "marian":
        batch["decoder_input_ids"] = torch.tensor(target).long()
    with torch.no_grad():
        logits = model(**batch).logits.numpy()
    inputs, mask = reader(TEXTS, padding=True, padding_side="right", return_tensors="np").values()
    padded = {"inputs": inputs, "input_mask": mask == 1} if name.endswith("bert") else {"inputs": inputs}
    if name == "marian":
        padded, real = {"source": inputs, "source_mask": mask == 1, "inputs": target}, target >= 0
    expected = np.asarray(jax.jit(loaded.model.apply)(loaded.params, padded))
    for number, row in enumerate(rows):
        alone, given = {"input_ids": torch.tensor([row])}, expected[number, : real[number].sum()]
        if name == "marian":
            alone["decoder_input_ids"] = batch["decoder_input_ids"][number : number + 1]
        compare(logits[number, real[number]], given)
        with torch.no_grad():
            compare(model(**alone).logits.numpy()[0], given)


@pytest.mark.thorough
@some("name", [name for name in AROUND if not name.endswith("bert")], QUICK)
def test_greedy_tokens_are_equal_to_the_end(name, tmp_path):
    loaded, prompts = ours(name), [[5, 7], [9, 4], [4, 11], [6, 6]]
    sources = prompts if name == "marian" else None
    begun = [[]] * len(prompts) if sources else prompts
    free = fxf.decode(loaded.model, loaded.params, begun, LENGTH - len(begun[0]), sources=sources)
    assert len(np.unique(free)) > 3
    for end in (None, free[0][3]):
        huggingface.save(tmp_path, loaded.config, loaded.params, first=0, end=end, padding=1)
        model = read(name, tmp_path)
        for prompt, tokens in zip(prompts, free, strict=True):
            ids = torch.tensor([prompt if sources else [0, *prompt]])
            with torch.no_grad():
                found = model.generate(ids, attention_mask=torch.ones_like(ids))[0].tolist()
            expected = tokens[: tokens.index(end) + 1] if end in tokens else tokens
            assert found[1 if sources else ids.shape[1] :] == expected


@pytest.mark.parametrize("name", ["gpt2", "bert", "distilbert", "marian"])
def test_tensors_are_exported_as_they_were_imported(name):
    loaded, state = ours(name), theirs(name).state_dict()
    tensors = huggingface.tensors(write_config(loaded.config), loaded.params)
    for key, value in tensors.items():
        np.testing.assert_array_equal(value, state[key].numpy())
    assert {key for key, _ in theirs(name).named_parameters() if "embed_positions" not in key} <= {*tensors}


@pytest.mark.parametrize(("case", "name"), table("names in older files"))
def test_names_in_older_files_are_read(case, name, tmp_path):
    loaded, old, new = ours(name), *case.values()
    huggingface.save(tmp_path, loaded.config, loaded.params, first=0, end=2, padding=1)
    path = tmp_path / huggingface.TENSORS_FILE
    tensors = read_weights(path)
    write_tensors(path, {key.replace(old, new): value for key, value in tensors.items()}, {})
    jax.tree.map(np.testing.assert_array_equal, huggingface.load(tmp_path).params, loaded.params)


# GPT-2 has query, key and value in one matrix, Llama has rotary halves and fewer heads of keys and values.
TASK_TYPES = {"gpt2": "CAUSAL_LM", "llama": "CAUSAL_LM", "bert": None, "marian": "SEQ_2_SEQ_LM"}
# Bert's output shares its last name, dense, with other modules.
WEIGHTS = "*/query,*/value,*/attention/output,*/up,!*blocks/0/*/up"
EVERY = pytest.mark.parametrize("name", TASK_TYPES)


def adapted(name, **keys):
    """Returns the `model` section, the `lora` section, the model with adapters, and params that are all random."""
    loaded, section = ours(name), LoraConfig(**{"rank": 3, "alpha": 5.0, "weights": WEIGHTS} | keys)
    model = lora(loaded.model, section)
    return loaded.config, section, model, {**loaded.params, LORA: random_params(model.spec[LORA], seed=1)}


def batch_of(name):
    """Returns a batch as fxf reads it, with padding where the model has some."""
    inputs = random_tokens((3, 7), VOCAB_SIZE)
    if name == "bert":
        mask = np.arange(7)[None] < np.array([[7], [2], [5]])
        return {"inputs": inputs, "input_mask": mask, "segments": random_tokens((3, 7), 3, seed=1)}
    if name == "marian":
        mask = np.arange(5)[None] < np.array([[5], [1], [3]])
        return {"inputs": inputs, "source": random_tokens((3, 5), VOCAB_SIZE, seed=1), "source_mask": mask}
    return {"inputs": inputs}


def assert_equal_logits(name, model, params, library_model):
    """Asserts that fxf's and transformers' models have equal logits; returns them."""
    batch = batch_of(name)
    expected = logits_of(library_model.eval(), name, batch)
    real = batch.get("input_mask", np.ones(batch["inputs"].shape, bool))  # outputs at padding do not matter
    assert_close(np.asarray(jax.jit(model.apply)(params, batch))[real], expected[real], operations=200)
    return expected


def with_adapters(model, folder):
    """Returns a copy of a model with a folder's adapters added by PEFT's documented formula."""
    record, tensors = json.loads((folder / peft.CONFIG_FILE).read_text()), read_weights(folder / peft.TENSORS_FILE)
    model = copy.deepcopy(model)
    modules = dict(model.named_modules())
    for key in [key for key in tensors if "lora_A" in key]:
        name = re.fullmatch(r"base_model\.model\.(.*)\.lora_A\.weight", key)[1]
        targets = record["target_modules"]
        assert name in targets or name.split(".")[-1] in targets
        rank = record["rank_pattern"].get(name, record["r"])
        assert tensors[key].shape[0] == rank
        alpha = record["alpha_pattern"].get(name, record.get("lora_alpha", 8))  # 8 is PEFT's default
        scale = alpha / (math.sqrt(rank) if record["use_rslora"] else rank)
        product = scale * tensors[key.replace("lora_A", "lora_B")] @ tensors[key]
        modules[name].weight.data += torch.tensor(product.T if record["fan_in_fan_out"] else product)
    reached = [n for n in modules if n in record["target_modules"] or n.split(".")[-1] in record["target_modules"]]
    assert len(reached) == len(tensors) // 2  # PEFT would add untrained ones elsewhere
    return model


@pytest.mark.parametrize("rank_stabilized", [False, True])
@EVERY
def test_a_model_with_a_folders_adapters_has_equal_logits_and_adapters_round_trip(name, rank_stabilized, tmp_path):
    config, section, model, params = adapted(name, rank_stabilized=rank_stabilized)
    peft.save(tmp_path, config, section, params)
    assert json.loads((tmp_path / peft.CONFIG_FILE).read_text())["task_type"] == TASK_TYPES[name]
    expected = assert_equal_logits(name, model, params, with_adapters(theirs(name), tmp_path))
    plain = logits_of(theirs(name), name, batch_of(name))
    assert np.abs(expected - plain).max() > 0.05 * np.abs(plain).max()
    if name != "gpt2":  # those that share a matrix become one of twice the rank
        found = peft.load(tmp_path, config, section, model.spec)
        jax.tree.map(np.testing.assert_array_equal, found, dict(flatten({LORA: params[LORA]})))


def test_an_adapter_of_a_fused_matrix_becomes_one_for_each_weight_at_its_scale(tmp_path):
    rng = np.random.default_rng(0)
    ends = {"lora_A": (2, 12), "lora_B": (36, 2)}
    tensors = {
        f"base_model.model.transformer.h.{i}.attn.c_attn.{end}.weight": rng.normal(size=shape).astype(np.float32)
        for i in range(2)
        for end, shape in ends.items()
    }
    write_tensors(tmp_path / peft.TENSORS_FILE, tensors, {})
    record = {"peft_type": "LORA", "r": 2, "use_rslora": False, "fan_in_fan_out": True,
              "rank_pattern": {}, "alpha_pattern": {"transformer.h.1.attn.c_attn": 3},
              "target_modules": ["c_attn"]}  # fmt: skip
    (tmp_path / peft.CONFIG_FILE).write_text(json.dumps(record))
    config, section, model, params = adapted("gpt2", rank=2, weights="*/query,*/key,*/value")
    params = unflatten_dict(flatten(params) | peft.load(tmp_path, config, section, model.spec), sep="/")
    assert_equal_logits("gpt2", model, params, with_adapters(theirs("gpt2"), tmp_path))


def test_adapters_that_peft_has_no_module_for_are_refused(tmp_path):
    config, section, _, params = adapted("mixtral", weights="*/query,*/experts/down")
    with pytest.raises(UserError, match=r"adapts no module of transformers that has blocks/0/.*/experts/down; "):
        peft.save(tmp_path, config, section, params)
    assert not [*tmp_path.iterdir()]


@pytest.mark.thorough  # with a library that is not among the requirements
@pytest.mark.filterwarnings("ignore")
@EVERY
def test_peft_itself_reads_an_export(name, tmp_path):
    import peft as library

    config, section, model, params = adapted(name)
    peft.save(tmp_path, config, section, params)
    assert_equal_logits(name, model, params, library.PeftModel.from_pretrained(copy.deepcopy(theirs(name)), tmp_path))


@pytest.mark.parametrize(("changes", "message"), refused("folders of other adapters"))
def test_a_folder_of_other_adapters_is_one_line(changes, message, tmp_path):
    section = {"rank": 3, "weights": "*/query"}
    asked = {key: changes.pop(key) for key in section if key in changes}
    old, new = changes.pop("renamed", ("", ""))
    sizes = {"n_layers": 2, "d_model": 6, "d_ff": 7, "n_heads": 1, "max_len": 9}
    config = TransformerLMConfig(**ARCHITECTURES["llama"].section, **sizes, activation="silu", final_bias=False)
    models = [lora(transformer_lm(config, 5), LoraConfig(**keys)) for keys in (section, section | asked)]
    peft.save(tmp_path, config, LoraConfig(**section), random_params(models[0].spec))
    path = tmp_path / peft.CONFIG_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    path = tmp_path / peft.TENSORS_FILE
    write_tensors(path, {name.replace(old, new) if old else name: x for name, x in read_weights(path).items()}, {})
    with pytest.raises(UserError, match=message):
        peft.load(tmp_path, config, LoraConfig(**section | asked), models[1].spec)
