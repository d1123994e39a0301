"""Seed 000: translation from English to French, its embedding, and its two kinds of positions."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import fxf
from experiments.seeds.rules import ZERO, Claim, at_least, equal
from experiments.seeds.trained import in_float64, largest, pairs_in, trained
from fxf.base.weights import count, flatten
from fxf.layers.embedding import embedding, embedding_spec
from fxf.layers.positions import concatenated
from fxf.runs.configs import folder
from fxf.runs.guests import load

PRESETS = load(folder() / "translation.py").PRESETS

WORDS = ["what", "is", "transformer", "language", "model"]
BY_HEART = (
    ("thank you", "Merci."), ("good evening", "Bonsoir."), ("see you tomorrow", "À demain."),
    ("where is the station?", "Où est la gare ?"), ("i am very hungry", "J'ai très faim."),
    ("we live near here", "Nous habitons près d'ici."),
)  # fmt: skip
SMALL = {**PRESETS["wolfram"], "n_layers": 2, "max_len": 48}
ENCODER_LAYER = 4 * (128**2 + 128) + 2 * 128 * 512 + 512 + 128 + 2 * 2 * 128
DECODER_LAYER = 8 * (128**2 + 128) + 2 * 128 * 512 + 512 + 128 + 3 * 2 * 128

CLAIMS = (
    Claim("learned_shape", "Embedding", "shape of five embedded words, learned positions", "(5, 64)", equal("(5, 64)")),
    Claim("fixed_shape", "Embedding", "shape of five embedded words, fixed positions", "(5, 64)", equal("(5, 64)")),
    Claim("fixed", "Embedding", "largest difference from the sines and cosines of the seed's code, in float64",
          "1/10000^(2i/d), all sines, then all cosines", ZERO),
    Claim("distinct", "Embedding", "smallest distance between two of the five fixed positions", "easy to distinguish",
          at_least(0.5), "The seed gives no number; a position has length 5.7."),
    Claim("heads", "SelfAttention Unit", "shape of the keys of n words", "n * 8 * 16", equal("n * 8 * 16")),
    Claim("hidden", "Feed Forward Network", "outputs of its two maps", "n*512 and n * 128", equal("n * 512, n * 128")),
    Claim("weights", "Encoder and Decoder Stack", "weights of the layers, 6 and 6", "d 128, 8 heads, 6 blocks",
          equal(6 * (ENCODER_LAYER + DECODER_LAYER)), "The seed prints no number; counted from its code."),
    Claim("thanks", "Inference Transformer Trained Model", "translation of “thank you”", "Merci.", equal("Merci."),
          "Learned by heart among six pairs: the seed's Anki pairs are not in a checkout."),
    Claim("bleu", "Training Transformer Model", "BLEU on new sentences of the phrase book",
          "trains English to French, with no score", at_least(50), "fxf's recipe; two blocks and 350 steps."),
)  # fmt: skip


def _embedded(positions: str) -> np.ndarray:
    """Returns five words embedded in 64 dimensions, with this kind of positions and the seed's init."""
    config = fxf.layer_config(d_model=64, n_heads=8, positions=positions, max_len=len(WORDS))
    params, places = fxf.initialize(embedding_spec(config, len(WORDS))), jnp.arange(len(WORDS))[None]
    return np.asarray(embedding(config, params, places, places)[0])


@in_float64
def _laws() -> dict[str, float | str]:
    """Checks the definition, and the seed's model at full size."""
    coefficients = 1 / 10000 ** (2 * np.arange(1, 33) / 64)
    angles = np.arange(1, 101)[:, None] * coefficients
    fixed = np.asarray(concatenated(jnp.arange(100), 64))
    five = fixed[:5]
    distances = np.linalg.norm(five[:, None] - five[None], axis=-1)[np.triu_indices(5, 1)]
    spec = fxf.model("encoder_decoder", vocab_size=100, **PRESETS["wolfram"]).spec
    shapes = {name: weight.shape for name, weight in flatten(spec).items()}
    n_embedding = 2 * (100 + 512) * 128 + 100 * 128 + 100
    key = shapes["encoder/blocks/0/attention/key"]
    up, down = (shapes[f"encoder/blocks/0/feed_forward/{name}"] for name in ("up", "down"))
    return {
        "learned_shape": str(_embedded("learned").shape),
        "fixed_shape": str(_embedded("sinusoidal_concatenated").shape),
        "fixed": largest(fixed - np.concatenate([np.sin(angles), np.cos(angles)], axis=1)),
        "distinct": float(distances.min()),
        "heads": " * ".join(["n", *map(str, key[1:])]),
        "hidden": f"n * {up[1]}, n * {down[1]}",
        "weights": count(spec) - n_embedding,
    }


def look(folder: Path) -> dict[str, Any]:
    """Trains a small version of the seed's model: to memorize six pairs, and on the phrase book."""
    model = {f"model.{name}": value for name, value in SMALL.items()}
    data = pairs_in(folder / "by_heart.tsv", BY_HEART, "en,fr") | {"data.shapes": 1, "data.lower_case": False}
    six = trained(folder / "by_heart", "translation:six", model | data | {"optimizer.learning_rate": 1e-3})
    book = trained(folder / "phrasebook", "translation", model | {"train.steps": 350, "data.batch_tokens": 1024})
    (thanks,) = six.run.generate([BY_HEART[0][0]])
    return {"figures": _laws() | {"thanks": thanks, "bleu": book.result["bleu"]}}
