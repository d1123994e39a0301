"""What is exported, read by `transformers` with its defaults: the same tokens, logits and answers."""

import warnings

import jax
import numpy as np
import pytest

import fxf
from fxf.base.weights import flatten, map_weights
from fxf.data.tokenizer import BOS, EOS, PAD, train_tokenizer
from fxf.interop import huggingface
from fxf.interop.architectures import ARCHITECTURES
from fxf.interop.tokenizer_json import tokenizer_json
from fxf.models import MODELS
from helpers import random_params, random_tokens, some
from pytorch_models import libraries  # noqa: F401  It is a fixture.

pytest.importorskip("safetensors")

torch = transformers = None  # set by `libraries`

LENGTH = 11
SIZES = {"n_layers": 2, "d_model": 12, "d_ff": 18, "n_heads": 3, "max_len": LENGTH}
MODEL_KEYS = {  # test_decoders.py has the other decoders
    "gpt2": {"activation": "gelu_tanh"},
    "llama": {"n_heads": 2, "n_kv_heads": 1, "head_dim": 6, "activation": "silu", "final_bias": False,
              "rope_theta": 300.0, "rope_factor": 8.0, "rope_trained_len": 8},
    "bert": {"activation": "gelu", "segments": 2},
    "marian": {"activation": "relu"},
}  # fmt: skip
BOUND = 1e-5  # of the largest logit
TEXTS = ["the cat sat on the mat", "a <eos> dog"]
QUICK = ("marian",)


def made(name, vocab_size):
    """Returns the `model` section, the model and its params, with small biases: else tokens would hardly matter."""
    architecture = ARCHITECTURES[name]
    registered = MODELS[architecture.model]
    config = registered.config(**{**SIZES, **architecture.section, **MODEL_KEYS[name]})
    model = registered.make(config, vocab_size)
    params = flatten(random_params(model.spec))
    last = "decoder/blocks/1/feed_forward_norm/scale" if name == "marian" else "norm/scale"
    for path, value in params.items():
        if path.endswith("bias"):
            params[path] = value / 9
        elif path.endswith("norm/scale"):
            # The last scales are below zero: else each token, read out of the table that it came from, begets itself.
            params[path] = (-1 if path == last else 1) * (abs(value) + 0.5)
    return config, model, map_weights(lambda path, _: params[path], model.spec)


def read(name, folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(transformers, ARCHITECTURES[name].name).from_pretrained(folder).eval()


def compare(found, expected):
    assert np.abs(found - expected).max() <= BOUND * np.abs(expected).max()


@some("name", MODEL_KEYS, QUICK)
def test_logits_are_equal_alone_and_in_a_padded_batch(name, tmp_path):
    tokenizer = train_tokenizer("word", 30, TEXTS)
    around = {"bert": (BOS, EOS), "marian": (None, EOS)}.get(name, (BOS, None))
    config, model, params = made(name, tokenizer.vocab_size)
    text = tokenizer_json(tokenizer, around, blanks=name == "bert")
    huggingface.save(tmp_path, config, params, first=BOS, end=EOS, padding=PAD, tokenizer=text)
    theirs = read(name, tmp_path)
    reader = transformers.AutoTokenizer.from_pretrained(tmp_path)
    first, last = ([] if token is None else [token] for token in around)
    rows = [[*first, *tokenizer.encode(text), *last] for text in TEXTS]
    assert reader(TEXTS).input_ids == rows
    assert (reader.bos_token_id, reader.eos_token_id, reader.pad_token_id) == (BOS, EOS, PAD)
    assert (theirs.config.eos_token_id, theirs.config.pad_token_id) == (EOS, PAD)
    batch = dict(reader(TEXTS, padding=True, return_tensors="pt"))
    real = batch["attention_mask"].numpy() == 1
    target = random_tokens((len(TEXTS), 5), tokenizer.vocab_size)
    if name == "marian":
        batch["decoder_input_ids"] = torch.tensor(target).long()
    with torch.no_grad():
        logits = theirs(**batch).logits.numpy()
    apply = jax.jit(model.apply)
    for number, row in enumerate(rows):
        inputs = np.array([row], np.int32)
        ours = {"inputs": inputs}
        if name == "marian":
            ours = {"source": inputs, "source_mask": inputs >= 0, "inputs": target[number : number + 1]}
        elif name == "bert":
            ours |= {"input_mask": inputs >= 0}
        expected = np.asarray(apply(params, ours))[0]
        compare(logits[number] if name == "marian" else logits[number][real[number]], expected)
        alone = {"input_ids": torch.tensor(inputs).long()}
        if name == "marian":
            alone["decoder_input_ids"] = batch["decoder_input_ids"][number : number + 1]
        with torch.no_grad():
            compare(theirs(**alone).logits.numpy()[0], expected)


@pytest.mark.thorough
@some("name", [name for name in MODEL_KEYS if name != "bert"], QUICK)
def test_greedy_tokens_are_equal_to_the_end(name, tmp_path):
    config, model, params = made(name, 23)
    prompts = [[5, 7], [9, 4], [4, 11], [6, 6]]
    sources = prompts if name == "marian" else None
    begun = [[]] * len(prompts) if sources else prompts
    free = fxf.decode(model, params, begun, LENGTH - len(begun[0]), sources=sources)
    assert len(np.unique(free)) > 3
    for end in (None, free[0][3]):
        huggingface.save(tmp_path, config, params, first=0, end=end, padding=1)
        theirs = read(name, tmp_path)
        for prompt, tokens in zip(prompts, free, strict=True):
            ids = torch.tensor([prompt if sources else [0, *prompt]])
            with torch.no_grad():
                found = theirs.generate(ids, attention_mask=torch.ones_like(ids))[0].tolist()
            n_read = 1 if sources else ids.shape[1]
            expected = tokens[: tokens.index(end) + 1] if end in tokens else tokens
            assert found[n_read:] == expected
