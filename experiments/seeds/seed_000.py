"""Seed 000: translation from English to French, with its embedding and its two kinds of positions."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np

import fxf
from experiments.seeds.claims import Claim, Found, Seed, at_least, at_most, equal
from experiments.seeds.trained import heat_map, in_float64, largest, maps, table, trained
from fxf.files import write_atomically
from fxf.layers.embedding import embedding, embedding_spec
from fxf.layers.positions import concatenated
from fxf.models.encoder_decoder import PRESETS
from fxf.weights import count, flatten

SECTIONS = (
    "Tokenizer", "Embedding", "SelfAttention Unit", "Masked SelfAttention Algorithm",
    "Multi head self attention Algorithm", "Feed Forward Network", "Pre Layer Normalization", "Decoder",
    "Encoder and Decoder Stack", "Training Transformer Model", "Inference Transformer Trained Model",
)  # fmt: skip
WORDS = ["what", "is", "transformer", "language", "model"]
BY_HEART = (
    ("thank you", "Merci."), ("good evening", "Bonsoir."), ("see you tomorrow", "À demain."),
    ("where is the station?", "Où est la gare ?"), ("i am very hungry", "J'ai très faim."),
    ("we live near here", "Nous habitons près d'ici."),
)  # fmt: skip
SMALL = {**PRESETS["wolfram"], "n_layers": 2, "max_len": 48}
ENCODER_LAYER = 4 * (128**2 + 128) + 2 * 128 * 512 + 512 + 128 + 2 * 2 * 128
DECODER_LAYER = 8 * (128**2 + 128) + 2 * 128 * 512 + 512 + 128 + 3 * 2 * 128
ROUNDING = "Zero up to the rounding of float64."

CLAIMS = (
    Claim("learned_shape", "Embedding", "shape of five embedded words, learned positions", "(5, 64)", equal("(5, 64)")),
    Claim("fixed_shape", "Embedding", "shape of five embedded words, fixed positions", "(5, 64)", equal("(5, 64)")),
    Claim("fixed", "Embedding", "largest difference from the sines and cosines of the seed's code, in float64",
          "1/10000^(2i/d), all sines, then all cosines", at_most(1e-12), ROUNDING),
    Claim("distinct", "Embedding", "least distance between two of the five fixed positions", "easy to distinguish",
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
    """Returns five words as vectors of 64 elements with positions of a kind, and the seed's kind of init."""
    config = fxf.layer_config(d_model=64, n_heads=8, positions=positions, max_len=len(WORDS))
    params, places = fxf.initialize(embedding_spec(config, len(WORDS))), jnp.arange(len(WORDS))[None]
    return np.asarray(embedding(config, params, places, places)[0])


@in_float64
def _laws() -> dict[str, float | str]:
    """Returns the figures of the definition, and of the seed's model at its full size."""
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


def look(folder: Path) -> Found:
    """Trains the seed's model in small, and draws embeddings and positions as the seed does."""
    folder.mkdir(parents=True, exist_ok=True)
    pairs = folder / "by_heart.tsv"
    write_atomically(pairs, "".join(f"{english}\t{french}\n" for english, french in BY_HEART))
    model = {f"model.{name}": value for name, value in SMALL.items()}
    data = {
        "name": "pairs",
        "path": str(pairs),
        "columns": "en,fr",
        "target": "fr",
        "held_out": 0.0,
        "shapes": 1,
        "lower_case": False,
    }
    six = trained(
        folder / "by_heart", "translation:six",
        model | {f"data.{name}": value for name, value in data.items()} | {"optimizer.learning_rate": 1e-3},
    )  # fmt: skip
    book = trained(folder / "phrasebook", "translation", model | {"train.steps": 350, "data.batch_tokens": 1024})
    answers = six.run.generate([english for english, _ in BY_HEART])
    figures = _laws() | {"thanks": answers[0], "bleu": book.result["bleu"]}
    names, vectors = ("word", "element"), ("position", "element")
    learned = [heat_map(f"words + {kind} positions", _embedded(name), WORDS, None, names)
               for kind, name in (("learned", "learned"), ("fixed", "sinusoidal_concatenated"))]  # fmt: skip
    table_TD = book.run.params["source_embedding"]["positions"]
    cells = [[a, b, c] for (a, b), c in zip(BY_HEART, answers, strict=True)]
    parts = [
        maps("“what is transformer language model”, embedded", *learned, text="Before training, 64 elements a word."),
        maps(
            "Positions",
            heat_map("fixed: all sines, then all cosines", concatenated(jnp.arange(48), 128), None, None, vectors),
            heat_map("learned, after training on the phrase book", table_TD, None, None, vectors),
        ),
        table("Six pairs by heart", ["English", "should be", "is"], cells),
        table("The phrase book, sentences held out", ["English", "should be", "is"], book.files.samples[-1]["rows"]),
        {"title": "Attention", **book.examples([tuple(book.files.samples[-1]["rows"][0][i] for i in (0, 2))])},
        {"title": "Loss", **book.curves()},
    ]
    return Found(figures, parts)


SEED = Seed("000", "Introduction Transformer Model from Math Perspective", SECTIONS, CLAIMS, look)
