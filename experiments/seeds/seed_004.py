"""Seed 004: the reversal of its three examples, its attention, and the laws of its definition."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fxf
from experiments.seeds.rules import ZERO, Claim, at_least, at_most, equal
from experiments.seeds.trained import in_float64, largest, trained
from fxf.layers.loss import cross_entropy
from fxf.layers.positions import interleaved

AUTOREGRESSIVE, POSITIONS = "Rowwise and autoregressive matrix operations", "Positional Encoding"
ESSENCE, WEIGHTED = "The essence of the loss function", "not the same as average over rows"
SIZES = {"vocab_size": 7, "n_layers": 2, "d_model": 12, "d_ff": 20, "n_heads": 3, "max_len": 11}
NO_FIGURE = "The seed prints the rate and keeps no figure. Five seeds of fxf's recipe reach it."


def _examples() -> list[Claim]:
    claims = []
    for n, (sequences, minutes) in enumerate([(100, 2), (36, 2), (336, 5)]):
        section, said = f"Example {n}", f"{sequences} elements in the training dataset"
        claims += [
            Claim(f"sequences_{n}", section, "sequences to reverse", said, equal(sequences)),
            Claim(f"right_{n}", section, "success rate, %", "a success rate", equal(100), NO_FIGURE),
            Claim(
                f"seconds_{n}", section, "seconds of training", f"less than {minutes} minutes", at_most(60 * minutes)
            ),
        ]
    return claims


CLAIMS = (
    *_examples(),
    Claim("notebook", "The training process", "mean loss of the notebook's procedure, last 100 of 6,000 steps",
          "its notebook prints the loss", at_most(0.3),
          "The seed keeps no figure. Five seeds of fxf give 0.07 to 0.26."),
    Claim("future", AUTOREGRESSIVE, "change of outputs when later tokens are cut off", "T(X|i) = T(X)|i", ZERO),
    Claim("above_diagonal", AUTOREGRESSIVE, "largest attention weight above the diagonal",
          "softmax returns a lower triangular matrix", equal(0)),
    Claim("linear_shift", POSITIONS, "largest |R PE(pos) − PE(pos + 5)| with one matrix R for all pos",
          "a linear map T_k takes PE_pos to PE_pos+k", ZERO),
    Claim("first_row", ESSENCE, "change of Y[1] with the input", "Y[1] does not depend on the input", equal(0)),
    Claim("by_rows", WEIGHTED, "|weighted loss − mean of the rows' losses|, weights drawn at random",
          "0.500619 and 0.501558: slightly different", at_least(1e-5), "The seed draws at random, without a seed."),
    Claim("equal_sums", WEIGHTED, "the same where the weights of each row have one sum",
          "0.485443117628963 and 0.485443117628964: equal", ZERO),
)  # fmt: skip


@in_float64
def _laws() -> dict[str, float]:
    """Checks the definition on a small model with random weights."""
    model = fxf.model("transformer_lm", **SIZES, init="uniform", dtype="float64")
    params, apply = fxf.initialize(model), jax.jit(model.apply)
    rng = np.random.default_rng(0)
    tokens_BT, other_BT = rng.integers(1, 7, (2, 5, 11)).astype(np.int32)
    tokens_BT[:, 0] = other_BT[:, 0] = 0  # what the model reads first
    whole = apply(params, {"inputs": tokens_BT})
    cut = [largest(apply(params, {"inputs": tokens_BT[:, :i]}) - whole[:, :i]) for i in (1, 4, 10)]
    logits_BTV, targets_BT = rng.normal(size=(5, 8, 7)), tokens_BT[:, :8]
    random_BT = rng.random((5, 8))
    rolled_BT = np.stack([np.roll(random_BT[0], i) for i in range(5)])

    def difference(weights_BT: np.ndarray) -> float:
        def mean(rows: slice) -> float:
            loss, weight = cross_entropy(
                lambda x: x, *(jnp.asarray(x[rows]) for x in (logits_BTV, targets_BT, weights_BT))
            )
            return float(loss / weight)

        return abs(mean(slice(None)) - sum(mean(slice(i, i + 1)) for i in range(5)) / 5)

    return {
        "future": max(cut),
        "first_row": largest(apply(params, {"inputs": other_BT})[:, 0] - whole[:, 0]),
        "by_rows": difference(random_BT),
        "equal_sums": difference(rolled_BT),
        "linear_shift": _linear_shift(64, 5),
    }


def _linear_shift(d_model: int, k: int) -> float:
    """Returns the distance between each pair (sin, cos), rotated by k steps, and the position k later."""
    table = np.asarray(interleaved(jnp.arange(1, 101), d_model))
    matrix = np.zeros((d_model, d_model))
    for i in range(0, d_model, 2):
        angle = k / 10000 ** (i / d_model)
        matrix[i : i + 2, i : i + 2] = [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]
    return largest(table[:-k] @ matrix.T - table[k:])


def look(folder: Path) -> dict[str, Any]:
    """Trains the three examples and the notebook's procedure, and reads the last example's attention."""
    runs = [trained(folder / f"reversal_{n}", f"reversal:example{n}") for n in range(3)]
    notebook = trained(folder / "reversal_notebook", "reversal:notebook0")
    figures: dict[str, Any] = _laws() | {"notebook": notebook.result["train_loss"]}
    for n, found in enumerate(runs):
        figures[f"sequences_{n}"] = found.result["examples"]
        figures[f"right_{n}"] = 100 * found.result["exact_match"]
        figures[f"seconds_{n}"] = found.result["wall_seconds"]
    last, prompt, answer = runs[2], "1 2 3 4", "4 3 2 1"
    inside = last.intermediates(last.task.to_batch(prompt, answer))
    weights = [value for name, value in inside.items() if name.endswith("/weights")]
    figures["above_diagonal"] = max(largest(np.triu(w, 1)) for w in weights)
    return {"figures": figures}
