"""Models with random weights, built by `transformers` without a download: the same logits here and there."""

import functools
import warnings

import jax
import numpy as np
import pytest

from closeness import assert_close
from fxf.interop import huggingface
from fxf.interop.architectures import ARCHITECTURES
from fxf.interop.config_json import write_config
from fxf.interop.weights_file import read_weights, write_tensors
from helpers import random_tokens
from pytorch_models import imported, libraries  # noqa: F401  It is a fixture.

pytest.importorskip("safetensors")

torch = transformers = None  # set by `libraries`

VOCAB_SIZE, PADDING, LENGTH = 31, 29, 13
CONFIGS = {
    "gpt2": {"n_positions": LENGTH, "n_embd": 12, "n_layer": 2, "n_head": 3, "bos_token_id": 0, "eos_token_id": 3},
    "bert": {"max_position_embeddings": LENGTH, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3,
             "intermediate_size": 17, "type_vocab_size": 3, "pad_token_id": PADDING},
    "marian": {"max_position_embeddings": LENGTH, "d_model": 12, "encoder_layers": 2, "decoder_layers": 2,
               "encoder_attention_heads": 3, "decoder_attention_heads": 3, "encoder_ffn_dim": 17, "decoder_ffn_dim": 17,
               "activation_function": "swish", "scale_embedding": True, "pad_token_id": PADDING, "eos_token_id": 3,
               "decoder_start_token_id": PADDING, "forced_eos_token_id": None},
}  # fmt: skip
CLASSES = {"gpt2": "GPT2", "bert": "Bert", "marian": "Marian"}
EVERY = pytest.mark.parametrize("name", CONFIGS)


@functools.cache
def theirs(name):
    """Returns a model whose weights, biases and norms are all random."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = getattr(transformers, f"{CLASSES[name]}Config")(vocab_size=VOCAB_SIZE, **CONFIGS[name])
        model = getattr(transformers, ARCHITECTURES[name].name)(config).eval()
    generator = torch.Generator().manual_seed(0)
    for key, value in [*model.named_parameters(), *model.named_buffers()]:
        if value.is_floating_point() and "embed_positions" not in key:
            # Small biases, and scales around one: else the tokens would hardly matter.
            size, middle = 0.1 if key.endswith("bias") else 0.5, float(value.ndim == 1 and key.endswith("weight"))
            # In Marian's last block around minus one: else every token, doubled by the residual, begets itself.
            middle = -middle if key == "model.decoder.layers.1.final_layer_norm.weight" else middle
            value.data.uniform_(middle - size, middle + size, generator=generator)
    return model


@functools.cache
def ours(name):
    loaded = imported(theirs(name))
    return loaded, jax.jit(loaded.model.apply)


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


NAMES = {
    "gpt2": {"inputs": "input_ids"},
    "bert": {"inputs": "input_ids", "input_mask": "attention_mask", "segments": "token_type_ids"},
    "marian": {"inputs": "decoder_input_ids", "source": "input_ids", "source_mask": "attention_mask"},
}


def logits_of(model, name, batch):
    arguments = {NAMES[name][key]: torch.tensor(value, dtype=torch.long) for key, value in batch.items()}
    with torch.no_grad():
        return model(**arguments).logits.numpy()


@EVERY
def test_logits_are_equal(name):
    (loaded, apply), batch = ours(name), batch_of(name)
    expected = logits_of(theirs(name), name, batch)
    real = batch.get("input_mask", np.ones(batch["inputs"].shape, bool))  # what padding reads is of no use
    assert np.abs(expected).max() > 0.5
    assert_close(apply(loaded.params, batch)[real], expected[real])


@EVERY
def test_tensors_go_back_as_they_came(name):
    loaded, state = ours(name)[0], theirs(name).state_dict()
    tensors = huggingface.tensors(write_config(loaded.config), loaded.params)
    for key, value in tensors.items():
        np.testing.assert_array_equal(value, state[key].numpy())
    assert {key for key, _ in theirs(name).named_parameters()} - {"model.encoder.embed_positions.weight",
            "model.decoder.embed_positions.weight"} <= set(tensors)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("gpt2", r"transformer.", ""),
        ("bert", "LayerNorm.weight", "LayerNorm.gamma"),
        ("bert", "LayerNorm.bias", "LayerNorm.beta"),
    ],
)
def test_names_in_older_files_are_read(name, old, new, tmp_path):
    loaded = ours(name)[0]
    huggingface.save(tmp_path, loaded.config, loaded.params, first=0, end=2, padding=1)
    path = tmp_path / huggingface.TENSORS_FILE
    tensors = read_weights(path)
    write_tensors(path, {key.replace(old, new): value for key, value in tensors.items()}, {})
    jax.tree.map(np.testing.assert_array_equal, huggingface.load(tmp_path).params, loaded.params)
