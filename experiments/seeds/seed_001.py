"""Seed 001: masked language modeling, and the laws of attention."""

from pathlib import Path
from typing import Any

import jax
import numpy as np

import fxf
from experiments.seeds.rules import ZERO, Claim, at_least, equal
from experiments.seeds.trained import Trained, in_float64, largest, trained
from fxf.data.tokenizer import BOS, EOS, MASK, SPECIAL_TOKENS, train_tokenizer
from fxf.layers.named import intermediates

SENTENCE = "I have an apple"
# The seed's layer: attention, then a norm; the mlp, then a norm; every linear map with a bias.
SIZES: dict[str, Any] = {"vocab_size": 9, "n_layers": 1, "d_model": 12, "d_ff": 48, "max_len": 7, "block": "post_norm"}
LAYER: dict[str, Any] = {**SIZES, "final_norm": False, "attention_bias": "all", "init": "uniform", "dtype": "float64"}

CLAIMS = (
    Claim("characters", "Tokenization", f"tokens of “{SENTENCE}” by character", "very long sequences", equal(15),
          "The sentence has 15 characters."),
    Claim("words", "Tokenization", f"tokens of “{SENTENCE}” by word", "every word is a token", equal(4)),
    Claim("new_word", "Tokenization", "characters of a new word lost by word tokens", "cannot handle new vocabulary",
          equal(5), "Word tokens lose all five letters of “fxfix”; pieces of bpe lose none."),
    Claim("new_pieces", "Tokenization", "characters of the same word lost by subwords",
          "commonly used segments", equal(0)),
    Claim("special", "Tokenization", "different tokens for mask, bos and eos", "3 special tokens", equal(3)),
    Claim("one_hot", "Token embedding", "largest |W one-hot(i) − row i|", "e = W_e[:, i]", equal(0)),
    Claim("sum", "Position embedding", "largest |embedding − (token vector + position vector)|",
          "e = W_e[:, i] + W_p[:, index(i)]", ZERO),
    Claim("equivariance", "Position embedding", "largest |Sa(XΠ) − Sa(X)Π| without positions", "Sa(XΠ) = Sa(X)Π", ZERO),
    Claim("positions_break_it", "Position embedding", "the same with positions", "positions solve this problem",
          at_least(0.1)),
    Claim("attention", "Single query attention", "largest difference of the weights from softmax(qᵀk/√d) in float64",
          "α = softmax(s/√d)", ZERO),
    Claim("mlp", "Transformer layer", "width of the mlp as a multiple of D, by default", "D, 4D, D", equal(4)),
    Claim("masked", "Tokenization", "accuracy on masked words, as a multiple of the most frequent word's share",
          "masked language modeling", at_least(1.5), "The seed trains nothing."),
)  # fmt: skip


@in_float64
def _laws() -> dict[str, float]:
    """Checks the laws of the seed's layer, with random weights."""
    tokens_BT = np.random.default_rng(0).integers(0, 9, (3, 7)).astype(np.int32)
    order = np.array([3, 0, 6, 2, 5, 1, 4])
    moved = {}
    for positions in ("none", "learned"):
        model = fxf.model("masked_lm", **LAYER, n_heads=3, positions=positions)
        params, apply = fxf.initialize(model, seed=1), jax.jit(model.apply)
        logits = apply(params, {"inputs": tokens_BT})
        moved[positions] = largest(apply(params, {"inputs": tokens_BT[:, order]}) - logits[:, order])
    table_VD = params["embedding"]["table"]
    embedded = intermediates(model.apply, params, {"inputs": tokens_BT})["embedding/residual"]
    added = table_VD[tokens_BT] + params["embedding"]["positions"][None]
    by_formula, weights = _single_head(tokens_BT)
    defaults = fxf.layer_config(dtype="float64")
    return {
        "one_hot": largest(jax.nn.one_hot(tokens_BT, 9) @ table_VD - table_VD[tokens_BT]),
        "sum": largest(embedded - added),
        "equivariance": moved["none"],
        "positions_break_it": moved["learned"],
        "attention": largest(weights - by_formula),
        "mlp": defaults.d_ff / defaults.d_model,
    }


def _single_head(tokens_BT: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns one head's attention weights by the seed's formula in float64, and by fxf."""
    model = fxf.model("masked_lm", **LAYER, n_heads=1)
    params = fxf.initialize(model, seed=2)
    inside = {name: np.asarray(x, np.float64) for name, x in
              intermediates(model.apply, params, {"inputs": tokens_BT}).items()}  # fmt: skip
    w = {name: np.asarray(x, np.float64) for name, x in params["blocks"]["0"]["attention"].items()}
    x_BTD = inside["embedding/residual"]
    q_BTD, k_BTD = (x_BTD @ w[name][:, 0] + w[f"{name}_bias"] for name in ("query", "key"))
    scores = np.exp(q_BTD @ k_BTD.transpose(0, 2, 1) / np.sqrt(x_BTD.shape[-1]))
    return scores / scores.sum(-1, keepdims=True), inside["block_0/attention/weights"][:, 0]


def _tokenization() -> dict[str, float]:
    """Returns the length of a sentence for each kind of token, and how much of a new word is lost."""
    texts = [SENTENCE, "the quick brown fox is six", "a fix for the box"]
    kinds = {kind: train_tokenizer(kind, 300, texts) for kind in ("character", "word", "bpe")}
    lost = {
        kind: len("fxfix") - len(found.decode(found.encode("fxfix")).replace("<unk>", ""))
        for kind, found in kinds.items()
    }
    return {
        "characters": len(kinds["character"].encode(SENTENCE)),
        "words": len(kinds["word"].encode(SENTENCE)),
        "new_word": lost["word"],
        "new_pieces": lost["bpe"],
        "special": len({MASK, BOS, EOS}),
    }


def _guess(found: Trained) -> float:
    """Returns the share of the most frequent word in the training text."""
    tokens_N = np.asarray(found.task.text.tokens("train"))
    counts = np.bincount(tokens_N)[len(SPECIAL_TOKENS) :]
    return float(counts.max() / counts.sum())


def look(folder: Path) -> dict[str, Any]:
    """Trains a masked language model."""
    found = trained(folder / "masking", "masking", {"train.steps": 1200, "train.evaluate_every": 0})
    return {"figures": _laws() | _tokenization() | {"masked": found.result["accuracy"] / _guess(found)}}
