"""Seed 003: its six sentences, memorized; the eight that it tries; and the rules of its model."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fxf
from experiments.seeds.rules import ZERO, Claim, at_most, equal
from experiments.seeds.trained import in_float64, largest, pairs_in, trained
from fxf.base.weights import count
from fxf.data.tokenizer import SPECIAL_TOKENS
from fxf.layers.positions import interleaved
from fxf.runs.configs import folder
from fxf.runs.guests import load

PRESETS = load(folder() / "translation.py").PRESETS

SIX = (
    ("hello world", "hola mundo"), ("i love you", "te amo"), ("the cat is black", "el gato es negro"),
    ("good morning", "buenos dias"), ("this is a book", "este es un libro"), ("what is your name", "como te llamas"),
)  # fmt: skip
NEW = ("i love cat", "this is a cat")  # the two of the seed's eight that no pair has
WIDTH, LAYERS = 512, 6
ENCODER_LAYER = 4 * WIDTH**2 + 2 * WIDTH * 2048 + 2048 + WIDTH + 2 * 2 * WIDTH
DECODER_LAYER = 8 * WIDTH**2 + 2 * WIDTH * 2048 + 2048 + WIDTH + 3 * 2 * WIDTH

CLAIMS = (
    Claim("words", "Example", "words in the six pairs", "a table of every word and 3 marks", equal(32),
          "The seed prints no number; there are 17 English and 15 Spanish ones."),
    Claim("weights", "Encoder", "weights of all layers", "d_model 512, 6 layers each, d_ff 2048",
          equal(LAYERS * (ENCODER_LAYER + DECODER_LAYER)), "Counted from the seed's classes."),
    Claim("right", "Example", "of six sentences, right after 100 steps", "100 epochs of Adam at 1e-4, a beam of 3",
          equal(6),
          "The seed prints translations and keeps none."),
    Claim("loss", "Example", "loss of the last step", "prints the loss every 10 epochs", at_most(0.01),
          "The seed keeps no figure."),
    Claim("known", "Example", "of two new sentences, answered in words of the six pairs",
          "translates 'i love cat' and 'this is a cat'", equal(2),
          "The seed keeps no answer, and none is the right one."),
    Claim("positions", "Positional Encoding", "largest difference from sin and cos of positions 0, 1, … in float64",
          "pe[:, 0::2] = sin, pe[:, 1::2] = cos", ZERO),
    Claim("one_table", "Embeddings", "weights of the embeddings and of the last map, in tables of words",
          "three layers share one table", equal(1)),
    Claim("scale", "Embeddings", "an embedded word as a multiple of its row in the table", "√d_model", equal("22.6274"),
          "√512 = 22.6274."),
    Claim("future", "Decoder", "change of outputs with later words", "prediction i depends on words before i",
          equal(0)),
    Claim("padding", "Encoder", "change of outputs with padding after the source", "a mask hides <PAD>", ZERO),
)  # fmt: skip


@in_float64
def _laws() -> dict[str, float]:
    """Checks the model's definition on one layer of full width."""
    model = fxf.model("encoder_decoder", vocab_size=30, **{**PRESETS["annotated"], "n_layers": 1, "dtype": "float64"})
    params, apply = fxf.initialize(model), jax.jit(model.apply)
    source_BS, inputs_BT = np.random.default_rng(0).integers(5, 30, (2, 3, 4)).astype(np.int32)
    is_word_BS = np.ones((3, 4), bool)

    def read(inputs_BT: np.ndarray, n_padding: int = 0) -> jax.Array:
        width = ((0, 0), (0, n_padding))
        source = {"source": np.pad(source_BS, width), "source_mask": np.pad(is_word_BS, width)}
        return apply(params, {**source, "inputs": inputs_BT})

    other_BT = inputs_BT.copy()
    other_BT[:, 2:] = 6
    axes = np.arange(WIDTH)
    angles = np.arange(20)[:, None] / 10000 ** (axes // 2 * 2 / WIDTH)
    by_formula = np.where(axes % 2 == 0, np.sin(angles), np.cos(angles))
    return {
        "positions": largest(interleaved(jnp.arange(20), WIDTH) - by_formula),
        "one_table": (count(model.spec) - ENCODER_LAYER - DECODER_LAYER) / (30 * WIDTH),
        "future": largest(read(other_BT)[:, :2] - read(inputs_BT)[:, :2]),
        "padding": largest(read(inputs_BT, 3) - read(inputs_BT)),
    }


def look(folder: Path) -> dict[str, Any]:
    """Trains on the six pairs, and translates the eight sentences."""
    six = trained(folder / "six", "translation:six", pairs_in(folder / "six.tsv", SIX, "en,es"))
    eight = [*(english for english, _ in SIX), *NEW]
    answers = six.run.generate(eight)
    known = {word for pair in SIX for side in pair for word in side.split()}
    right = dict(SIX)
    inside = six.intermediates(six.task.to_batch("i love you", "te amo"))
    embedded = inside["encoder/embedding/residual"] - inside["encoder/embedding/positions"]
    row = six.run.params["embedding"]["table"][six.task.to_batch("i love you", "te amo")["source"][0, 0]]
    figures = _laws() | {
        "words": six.task.vocab_size - len(SPECIAL_TOKENS),
        "weights": six.result["parameters"] - six.task.vocab_size * WIDTH,
        "right": sum(answer == right.get(sentence) for sentence, answer in zip(eight, answers, strict=True)),
        "loss": six.result["train_loss"],
        "known": sum(bool(answer) and set(answer.split()) <= known for answer in answers[len(SIX) :]),
        "scale": f"{np.linalg.norm(embedded[0, 0]) / np.linalg.norm(row):.4f}",
    }
    return {"figures": figures}
