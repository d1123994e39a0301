"""Claims that kept results decide: those of the seeds that need training, and published metrics."""

import csv
from collections.abc import Callable, Iterator
from statistics import fmean, stdev
from typing import Any, NamedTuple

from experiments.claims.pairs import Outcome, Results, spread
from experiments.runner import RESULTS
from experiments.seeds.rules import Rule, at_least, at_most, shown
from experiments.seeds.systems import SEEDS
from fxf.base.files import read_json


class Known(NamedTuple):
    """A claim that given results decide, its outcome, and the command that measures it."""

    says: str
    source: str
    outcome: Callable[[Results], Outcome]
    command: str


def of_rule(rule: Rule, figures: list[Any]) -> Outcome:
    """Returns the outcome of a rule for a metric, or for the mean of several.

    A mean within two standard errors of the rule's bound is level with it.
    """
    if len(figures) == 1:
        return Outcome(f"{shown(figures[0])} ({rule})", "holds" if rule.accepts(figures[0]) else "does not hold")
    assert not isinstance(rule.value, str)
    error = stdev(figures) / len(figures) ** 0.5
    level = abs(fmean(figures) - rule.value) <= 2 * error
    verdict = "level" if level else "holds" if rule.accepts(fmean(figures)) else "does not hold"
    return Outcome(f"{spread(figures)} ({rule})", verdict)


# Claims of the seeds that need training; `make seeds` also checks their formulas.
TRAINED = {
    "004": ("right_0", "right_1", "right_2", "notebook"),
    "003": ("right", "loss"),
    "000": ("bleu",),
    "002": ("map", "learned_softmax", "learned_expressive", "learned_slide", "continued"),
    "001": ("masked",),
}


def of_seeds() -> Iterator[Known]:
    for number, names in TRAINED.items():
        for claim in SEEDS[number].claims:
            if claim.name in names:
                yield _of_seed(number, claim)


def _of_seed(number: str, claim: Any) -> Known:
    def outcome(results: Results) -> Outcome:
        return of_rule(claim.rule, [results[number]["figures"][claim.name]])

    return Known(claim.what, f"seed {number}, {claim.section}", outcome, f"--only={number}")


def _seeds_of(config: str, figure: str) -> list[float]:
    paths = sorted((RESULTS / "configs" / config).glob("seed_*/result.json"))
    return [read_json(path, "a kept result")[figure] for path in paths]


def _of_the_race(entry: str, figure: str) -> list[float]:
    """Returns the loss of each seed of an entry in the race."""
    with (RESULTS / "race/table.csv").open() as file:
        return [float(row[figure]) for row in csv.DictReader(file) if row["entry"] == entry]


def _published(says: str, source: str, rule: Rule, figures: Callable[[], list[float]], command: str) -> Known:
    return Known(says, source, lambda results: of_rule(rule, figures()), f"fxf train --config={command}")


PUBLISHED = (
    _published("Transformer-Tiny's BLEU on Multi30k English–German with 2.57 M weights; here 2.09 M, three seeds",
               "Wu et al. 2021, arXiv 2105.14462", at_least(41.02), lambda: _seeds_of("multi30k_de", "bleu"),
               "translation:multi30k_de --config.data.path=multi30k/tok --workdir=runs/multi30k_de"),
    _published("BLEU of 9 M weights German–English, greedy; here 2.09 M, one run, each scored by its own tool",
               "bentrevett/pytorch-seq2seq",
               at_least(36.52), lambda: [read_json(RESULTS / "multi30k_deen/result.json", "a kept result")["bleu"]],
               "translation:multi30k_deen --config.data.path=multi30k/tok --workdir=runs/multi30k_deen"),
    _published("validation loss of nanoGPT's CPU recipe, 1.8857; here with biases and no decay of embeddings, five "
               "seeds", "nanoGPT, run as it stands", at_most(1.8857),
               lambda: _of_the_race("characters:nanogpt_cpu", "validation_loss"),
               "characters:nanogpt_cpu --config.data.path=input.txt --workdir=runs/nanogpt_cpu"),
    _published("an encoder of one block reverses 16 digits in 100 %; here a decoder of two blocks, 1 to 25 of 50 "
               "symbols, five seeds", "UvA deep-learning tutorial 6", at_least(0.999),
               lambda: _seeds_of("reversal", "exact_match"), "reversal --workdir=runs/reversal"),
)  # fmt: skip
