"""Seed 002: the boolean map, the delayed sums, the character model, and the attention and positions of the lecture."""

import importlib
import itertools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fxf
from experiments.seeds.rules import ZERO, Claim, at_least, at_most, equal
from experiments.seeds.trained import in_float64, largest, trained
from fxf.layers.attention import Expressive
from fxf.layers.layer import whole_rows
from fxf.layers.linear_attention import LinearAttention
from fxf.layers.positions import alibi_slopes, rotary

fxf.read_config("time_series")  # the time series are in its folder
series = importlib.import_module("primer.time_series").series

ROPE, ALIBI, SUMS = (
    "rotary positional encoding (RoPE)",
    "ALiBi positional encoding",
    "generating training data, XOR code",
)
EXPRESSIVE, MASKED, MEMORY = "expressive attention", "masked self attention", "associative soft weight computing"
BOOLEAN, MICRO = "transfomer bilayer code", "micro transformer code"
# The seed's table, by base for delays 1 to 9.
PRINTED = {
    2: (3, 7, 15, 21, 63, 127, 63, 73, 2889),
    8: (12, 28, 60, 84, 252, 508, 252, 292, 3558),
    16: (24, 56, 120, 168, 504, 1016, 504, 584, 7112),
}
MENDED = {
    (2, 9): (889, "x¹⁰ + x + 1 over the field of two elements divides x⁸⁸⁹ − 1, and the series returns there."),
    (8, 9): (3556, "Modulo 2 the series has period 889, so 889 divides the period; it is 4 · 889."),
}
KINDS = {
    **{k: ("time_series", {"model.attention": k}, f"{k} attention") for k in ("softmax", "expressive", "linear")},
    "slide": ("time_series:linear", {}, "linear attention as on the slide, without feature map"),
}
NUMBERS = 60  # of the learned series


def period(delay: int, base: int) -> int:
    """Returns the period of the series that starts from a context of ones."""
    numbers = start = (1,) * (delay + 1)
    for n_steps in itertools.count(1):
        numbers = (*numbers[1:], (numbers[0] + numbers[1]) % base)
        if numbers == start:
            return n_steps
    raise AssertionError("a step has an inverse, so every series is a cycle")


def _periods() -> list[Claim]:
    claims = []
    for base, periods in PRINTED.items():
        for delay, printed in enumerate(periods, 1):
            right, why = MENDED.get((base, delay), (printed, ""))
            what = f"period of delay {delay}, base {base}"
            claims.append(Claim(f"period_{base}_{delay}", SUMS, what, str(printed), equal(right), why))
    return claims


CLAIMS = (
    Claim("map", BOOLEAN, "largest squared error of ten boolean maps after 4,400 steps", "stops below 0.0001",
          at_most(1e-4)),
    *_periods(),
    *(Claim(f"learned_{kind}", SUMS, f"series continued correctly with {attention}, %",
            "training data for a transformer", at_least(99), "The seed trains nothing on them.")
      for kind, (_, _, attention) in KINDS.items()),
    Claim("continued", SUMS, f"correct numbers of {NUMBERS} generated from 1 1", "1 1 2 3 5 8 3 1 …",
          equal(NUMBERS)),
    Claim("xor", SUMS, "sums of 00, 10, 01 and 11 in base 2", "0 1 1 0", equal("0 1 1 0")),
    Claim("rope", ROPE, "change of Q(l)·K(m) when both move by 7", "depends on m − l", ZERO),
    Claim("alibi", ALIBI, "slopes of two heads", "A^(−h/N), A = 2⁸, h = 1 … N", equal("0.0625 0.00390625"),
          "The seed's code has other slopes, see the page of contradictions."),
    Claim("expressive", EXPRESSIVE, "largest difference from z²/(1 + z²), normalized, in float64",
          "weights by z²/(1 + z²)", at_most(1e-12), "The formula is Gros 2024's, which the slide's picture shows."),
    Claim("linear", MASKED, "largest difference of a head from the formula, in float64",
          "Σ V_k (K_k·Q_q) / Σ K_k·Q_q", ZERO, "With model.feature_map none."),
    Claim("memory", MEMORY, "the same by cached steps, largest difference from whole sequences",
          "W_m = W_m−1 + V_m ⊗ K_m", ZERO),
    Claim("letters", MICRO, "accuracy on the last letter, as a multiple of the most frequent letter's share",
          "predicts the next letter", at_least(2), "The seed keeps no figure."),
)  # fmt: skip


@in_float64
def _laws() -> dict[str, float | str]:
    """Checks positions and attention, and the table of periods."""
    rng, config = np.random.default_rng(0), fxf.layer_config(d_model=8, n_heads=1, positions="rotary")
    q_11TK, k_11TK = jnp.asarray(rng.normal(size=(2, 1, 1, 1, 8)))

    def product(of_query: int, of_key: int) -> float:
        """Returns the product of the query at one position with the key at another."""
        q, k = rotary(config, q_11TK, jnp.array([[of_query]])), rotary(config, k_11TK, jnp.array([[of_key]]))
        return float((q * k).sum())

    scores = jnp.asarray(rng.normal(size=(1, 2, 5, 5)))
    weights = (z := np.asarray(scores, np.float64) ** 2) / (1 + z)
    found = Expressive(fxf.layer_config()).weigh({}, scores, jnp.zeros(scores.shape))
    model = fxf.model("transformer_lm", vocab_size=7, n_layers=1, d_model=12, d_ff=20, n_heads=3, max_len=9,
                      attention="linear", feature_map="none", init="uniform", dtype="float64")  # fmt: skip
    params, step = fxf.initialize(model), jax.jit(model.step)  # type: ignore[arg-type]
    tokens_BT = jax.random.randint(jax.random.key(0), (4, 9), 0, 7)
    assert model.prefill is not None
    cache = model.prefill(params, {"inputs": tokens_BT[:, :1], "lengths": jnp.zeros(4, jnp.int32)}, 9)
    by_steps = []
    for t in range(9):
        logits, cache = step(params, cache, tokens_BT[:, t])
        by_steps.append(logits)
    pairs = np.array([[0, 0], [1, 0], [0, 1], [1, 1]])
    return {
        "rope": abs(product(3, 11) - product(10, 18)),
        "alibi": " ".join(map(str, alibi_slopes(2))),
        "expressive": largest(found - weights / weights.sum(-1, keepdims=True)),
        "linear": largest(_head(rng)),
        "memory": largest(jnp.stack(by_steps, axis=1) - jax.jit(model.apply)(params, {"inputs": tokens_BT})),
        "xor": " ".join(map(str, np.asarray(series(pairs, 2, 3))[:, 2])),
        **{f"period_{base}_{delay}": period(delay, base) for base in PRINTED for delay in range(1, 10)},
    }


def _head(rng: np.random.Generator) -> Any:
    """Returns the distance of a linear-attention head without feature map from the slide's sums over earlier tokens."""
    config = fxf.layer_config(d_model=5, n_heads=1, positions="none", attention="linear", feature_map="none",
                              attention_bias="none", dtype="float64")  # fmt: skip
    layer, x_TD = LinearAttention(config), rng.normal(size=(7, 5))
    params = {name: jnp.asarray(rng.normal(size=weight.shape)) for name, weight in layer.spec().items()}
    found_1TD, _ = layer.apply(params, jnp.asarray(x_TD)[None], whole_rows(7))
    q_TK, k_TK, v_TK = (x_TD @ params[name][:, 0] for name in ("query", "key", "value"))
    products_TC = np.tril(q_TK @ k_TK.T)
    read_TK = products_TC @ v_TK / products_TC.sum(1, keepdims=True)
    return found_1TD[0] - read_TK @ params["output"][0]


def look(folder: Path) -> dict[str, Any]:
    """Trains the boolean maps, the series with each kind of attention, and the character model."""
    boolean = trained(folder / "boolean_map", "boolean_map")
    runs = {kind: trained(folder / f"series_{kind}", *said[:2]) for kind, said in KINDS.items()}
    primer = trained(folder / "letters", "characters:primer", {"train.steps": 1000})
    expected, written = np.asarray(series(np.array([[1, 1]]), 10, NUMBERS + 2))[0].tolist(), [1, 1]
    while len(written) < NUMBERS + 2:  # the model continues two numbers at a time by as many as it has learned
        (answer,) = runs["softmax"].run.generate([" ".join(map(str, written[-2:]))])
        written += map(int, answer.split())
    right = sum(a == b for a, b in zip(written[2:], expected[2:], strict=False))
    letters_N = np.asarray(primer.task.text.tokens("train"))
    commonest = float(np.bincount(letters_N).max() / len(letters_N))
    figures = {
        "map": boolean.result["squared_error"],
        "continued": right,
        "letters": primer.result["accuracy"] / commonest,
        **{f"learned_{kind}": 100 * found.result["exact_match"] for kind, found in runs.items()},
    }
    return {"figures": _laws() | figures}
