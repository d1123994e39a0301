"""Claims that take longer than a laptop has, held to kept results: published figures, and our studies."""

from collections.abc import Sequence
from typing import Any

from experiments.claims.claim import Single
from experiments.figures.kept import Kept, Row
from experiments.seeds.claims import at_least, at_most

RESULTS, STUDIES = "experiments/results", "experiments/studies"
TRAIN = "fxf train --config="
SWEEP = "fxf sweep --config=studies/"


def of_rows(rows: Sequence[Row], figure: str, **keys: Any) -> list[float]:
    """Returns a column of the rows of a table that have these values; `__` in a name stands for a point."""
    return [row[figure] for row in rows if all(row[name.replace("__", ".")] == value for name, value in keys.items())]


def gain_of_random_positions(kept: Kept) -> list[float]:
    """Returns what random positions gain at length 30, for each kind that was tried with and without."""
    rows = kept.table("positions")
    plain, drawn = (
        {
            row["model.positions"]: row["exact_match_30"]
            for row in rows
            if row["model.position_stretch"] == 1 and bool(row["model.position_range"]) == with_range
        }
        for with_range in (False, True)
    )
    return [drawn[kind] - plain[kind] for kind in drawn]


def solved(kept: Kept, kind: str) -> int:
    return sum(value >= 0.99 for value in of_rows(kept.table("expressive"), "exact_match", model__attention=kind))


def worst(kept: Kept, block: str, rate: float) -> float:
    return min(of_rows(kept.table("blocks"), "exact_match", model__block=block, optimizer__learning_rate=rate))


CLAIMS = (
    Single(
        "multi30k_de",
        "Transformer-Tiny reaches BLEU 41.02 on Multi30k English–German (with 2.57 M weights)",
        "Wu et al. 2021, arXiv 2105.14462",
        "BLEU of one seed with 2.09 M weights",
        f"{TRAIN}translation:multi30k_de --config.data.path=multi30k/tok",
        at_least(41.02),
        lambda kept: [kept.result("multi30k_de")["bleu"]],
        f"{RESULTS}/multi30k_de",
    ),
    Single(
        "multi30k_deen",
        "a model of 9 M weights reaches BLEU 36.52 German–English, greedy",
        "bentrevett/pytorch-seq2seq",
        "BLEU of one seed with 2.09 M weights",
        f"{TRAIN}translation:multi30k_deen --config.data.path=multi30k/tok",
        at_least(36.52),
        lambda kept: [kept.result("multi30k_deen")["bleu"]],
        f"{RESULTS}/multi30k_deen",
    ),
    Single(
        "nanogpt_cpu",
        "nanoGPT's CPU recipe reaches validation loss 1.8857 on tinyshakespeare",
        "nanoGPT, run as it stands",
        "validation loss",
        f"{TRAIN}characters:nanogpt_cpu --config.data.path=input.txt",
        at_most(1.8857 + 0.02),
        lambda kept: [kept.result("configs/characters_nanogpt_cpu")["validation_loss"]],
        f"{RESULTS}/configs/characters_nanogpt_cpu",
    ),
    Single(
        "uva",
        "one block reverses 16 of 10 symbols in 100 %; here a decoder, 1 to 25 of 50",
        "UvA deep-learning tutorial 6",
        "exact match of 10,000",
        f"{TRAIN}reversal",
        at_least(0.999),
        lambda kept: [kept.result("configs/reversal")["exact_match"]],
        f"{RESULTS}/configs/reversal",
    ),
    Single(
        "kazemnejad",
        "trained on at most 20, no usual encoding extrapolates to 40",
        "Kazemnejad et al. 2023, arXiv 2305.19466",
        "largest exact match at length 40",
        f"{SWEEP}positions",
        at_most(0.01),
        lambda kept: [max(of_rows(kept.table("positions"), "exact_match_40"))],
        f"{STUDIES}/positions",
    ),
    Single(
        "ruoss",
        "random positions gain 12 points of length generalization on average",
        "Ruoss et al. 2023, arXiv 2305.16843",
        "gain of exact match at length 30, mean over three kinds",
        f"{SWEEP}positions",
        at_least(0.12),
        gain_of_random_positions,
        f"{STUDIES}/positions",
    ),
    Single(
        "cho",
        "positions that the task gives carry reversal to 50 times the length",
        "Cho et al. 2024, arXiv 2405.20671",
        "exact match at 1,000 after at most 20, mean over seeds",
        f"{SWEEP}turns",
        at_least(0.99),
        lambda kept: of_rows(kept.table("turns"), "exact_match_1000", task__mirrored="True"),
        f"{STUDIES}/turns",
    ),
    Single(
        "turns_1000",
        "positions by turns carry reversal from 40 to 1,000 symbols",
        "ours",
        "exact match at 1,000, mean over seeds",
        f"{SWEEP}turns",
        at_least(0.99),
        lambda kept: of_rows(
            kept.table("turns"), "exact_match_1000", model__positions="turns", model__window=8, task__max_length=40
        ),
        f"{STUDIES}/turns",
    ),
    Single(
        "gros",
        "expressive attention solves more delayed sums than softmax attention",
        "Gros 2024, arXiv 2407.18601",
        "runs that expressive attention solves more than softmax, of 48",
        f"{SWEEP}expressive",
        at_least(1),
        lambda kept: [solved(kept, "expressive") - solved(kept, "softmax")],
        f"{STUDIES}/expressive",
    ),
    Single(
        "idea",
        "the “inspirational idea” is a block that learns as the definition's does",
        "seed 004",
        "exact match of the idea less that of the definition, mean over three rates and seeds",
        f"{SWEEP}blocks",
        at_least(-0.02),
        lambda kept: [
            a - b
            for a, b in zip(
                of_rows(kept.table("blocks"), "exact_match", model__block="idea"),
                of_rows(kept.table("blocks"), "exact_match", model__block="pre_norm"),
                strict=True,
            )
        ],
        f"{STUDIES}/blocks",
    ),
    Single(
        "bench_nanogpt",
        "training is faster than PyTorch's, compiled, at nanoGPT's CPU size",
        "ours, before it was measured here",
        "tokens/s, fxf's over PyTorch's",
        "make bench",
        at_least(1),
        lambda kept: [kept.bench_row("nanogpt_cpu")["fxf"] / kept.bench_row("nanogpt_cpu")["PyTorch compiled"]],
        f"{RESULTS}/bench",
    ),
    Single(
        "bench_tiny",
        "training is faster than PyTorch's, compiled, at Transformer-Tiny's size",
        "ours, before it was measured here",
        "tokens/s, fxf's over PyTorch's",
        "make bench",
        at_least(1),
        lambda kept: [
            kept.bench_row("transformer_tiny")["fxf"] / kept.bench_row("transformer_tiny")["PyTorch compiled"]
        ],
        f"{RESULTS}/bench",
    ),
    Single(
        "bench_beam",
        "a beam of 5 is faster than a batched search in PyTorch",
        "ours",
        "sentences/s, fxf's over PyTorch's",
        "make bench",
        at_least(1),
        lambda kept: [kept.bench_row("beam")["fxf"] / kept.bench_row("beam")["PyTorch"]],
        f"{RESULTS}/bench",
    ),
)
