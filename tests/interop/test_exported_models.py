"""What is exported, read by `transformers` with its defaults: the same tokens, logits and answers."""

import warnings

import jax
import numpy as np
import pytest

import fxf
from fxf.data.tokenizer import BOS, EOS, PAD, train_tokenizer
from fxf.interop import huggingface
from fxf.interop.architectures import ARCHITECTURES
from fxf.interop.config_json import write_config
from fxf.interop.tokenizer_json import tokenizer_json
from fxf.interop.weights_file import read_weights, write_tensors
from helpers import random_tokens, some
from pytorch_models import LENGTH, VOCAB_SIZE, libraries, ours, theirs  # noqa: F401  One is a fixture.

pytest.importorskip("safetensors")

torch = transformers = None  # set by `libraries`

AROUND = {"gpt2": (BOS, None), "llama": (BOS, None), "bert": (BOS, EOS), "marian": (None, EOS)}
BOUND = 1e-5  # of the largest logit
TEXTS = ["the cat sat on the mat", "a <eos> dog"]
QUICK = ("marian",)


def read(name, folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(transformers, ARCHITECTURES[name].name).from_pretrained(folder).eval()


def compare(found, expected):
    assert np.abs(found - expected).max() <= BOUND * np.abs(expected).max()


@some("name", AROUND, QUICK)
def test_logits_are_equal_alone_and_in_a_padded_batch(name, tmp_path):
    loaded, tokenizer = ours(name), train_tokenizer("word", VOCAB_SIZE, TEXTS)
    text = tokenizer_json(tokenizer, AROUND[name], blanks=name == "bert")
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
    apply = jax.jit(loaded.model.apply)
    for number, row in enumerate(rows):
        inputs = np.array([row], np.int32)
        alone, ours_alone = {"input_ids": torch.tensor(inputs).long()}, {"inputs": inputs}
        if name == "marian":
            ours_alone = {"source": inputs, "source_mask": inputs >= 0, "inputs": target[number : number + 1]}
            alone["decoder_input_ids"] = batch["decoder_input_ids"][number : number + 1]
        elif name == "bert":
            ours_alone |= {"input_mask": inputs >= 0}
        expected = np.asarray(apply(loaded.params, ours_alone))[0]
        compare(logits[number] if name == "marian" else logits[number][real[number]], expected)
        with torch.no_grad():
            compare(model(**alone).logits.numpy()[0], expected)


@pytest.mark.thorough
@some("name", [name for name in AROUND if name != "bert"], QUICK)
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


@pytest.mark.parametrize("name", ["gpt2", "bert", "marian"])
def test_tensors_go_back_as_they_came(name):
    loaded, state = ours(name), theirs(name).state_dict()
    tensors = huggingface.tensors(write_config(loaded.config), loaded.params)
    for key, value in tensors.items():
        np.testing.assert_array_equal(value, state[key].numpy())
    assert {key for key, _ in theirs(name).named_parameters() if "embed_positions" not in key} <= {*tensors}


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("gpt2", r"transformer.", ""),
        ("bert", "LayerNorm.weight", "LayerNorm.gamma"),
        ("bert", "LayerNorm.bias", "LayerNorm.beta"),
    ],
)
def test_names_in_older_files_are_read(name, old, new, tmp_path):
    loaded = ours(name)
    huggingface.save(tmp_path, loaded.config, loaded.params, first=0, end=2, padding=1)
    path = tmp_path / huggingface.TENSORS_FILE
    tensors = read_weights(path)
    write_tensors(path, {key.replace(old, new): value for key, value in tensors.items()}, {})
    jax.tree.map(np.testing.assert_array_equal, huggingface.load(tmp_path).params, loaded.params)
