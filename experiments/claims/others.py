"""Claims that are held to kept results: what training gives of the seeds' claims, and published figures."""

from collections.abc import Callable, Iterator
from statistics import fmean
from typing import Any, NamedTuple

from experiments.claims.pairs import Outcome, Results, spread
from experiments.runner import RESULTS
from experiments.seeds.rules import Rule, at_least, at_most, shown
from experiments.seeds.systems import SEEDS
from fxf.files import read_json


class Known(NamedTuple):
    """A claim about figures that some results hold, and its outcome."""

    name: str
    says: str
    source: str
    rule: str
    outcome: Callable[[Results], Outcome]


def of_rule(rule: Rule, figures: list[Any]) -> Outcome:
    """Returns the outcome of a rule on a figure, or on the mean of several."""
    if len(figures) == 1:
        return Outcome(shown(figures[0]), "holds" if rule.accepts(figures[0]) else "does not hold")
    return Outcome(spread(figures), "holds" if rule.accepts(fmean(figures)) else "does not hold")


# The figures of the seeds that a training gives; `make seeds` has those of their formulas too.
TRAINED = {
    "004": ("right_0", "right_1", "right_2", "notebook"),
    "003": ("right", "loss"),
    "000": ("bleu",),
    "002": ("map", "learned_softmax", "learned_expressive", "continued"),
    "001": ("masked",),
}


def of_seeds() -> Iterator[Known]:
    for number, names in TRAINED.items():
        for claim in SEEDS[number].claims:
            if claim.name in names:
                yield _of_seed(number, claim)


def _of_seed(number: str, claim: Any) -> Known:
    source, rule = f"seed {number}, {claim.section}", f"{claim.rule}" + f" · {claim.why}" * bool(claim.why)

    def outcome(results: Results) -> Outcome:
        return of_rule(claim.rule, [results[number]["figures"][claim.name]])

    return Known(f"{number} {claim.name}", f"{claim.what}: {claim.says}", source, rule, outcome)


def _seeds_of(config: str, figure: str) -> list[float]:
    paths = sorted((RESULTS / "configs" / config).glob("seed_*/result.json"))
    return [read_json(path, "a kept result")[figure] for path in paths]


def _older(config: str, figure: str) -> list[float]:
    """Returns the figure of a run that was not kept."""
    return [read_json(RESULTS / "older.json", "kept results")["configs"]["runs"][config][figure]]


def _published(name: str, says: str, source: str, rule: Rule, figures: Callable[[], list[float]], what: str) -> Known:
    return Known(name, says, source, f"{what} {rule}", lambda results: of_rule(rule, figures()))


PUBLISHED = (
    _published("multi30k_de", "Transformer-Tiny has BLEU 41.02 on Multi30k English–German, with 2.57 M weights",
               "Wu et al. 2021, arXiv 2105.14462", at_least(41.02), lambda: _seeds_of("multi30k_de", "bleu"),
               "BLEU of 2.09 M weights"),
    _published("multi30k_deen", "9 M weights have BLEU 36.52 German–English, greedy", "bentrevett/pytorch-seq2seq",
               at_least(36.52), lambda: [read_json(RESULTS / "multi30k_deen/result.json", "a kept result")["bleu"]],
               "BLEU of one seed with 2.09 M weights"),
    _published("nanogpt_cpu", "nanoGPT's CPU recipe has validation loss 1.8857 on tinyshakespeare",
               "nanoGPT, run as it stands", at_most(1.8857 + 0.02),
               lambda: _older("characters_nanogpt_cpu", "validation_loss"), "validation loss, with the span of seeds,"),
    _published("uva", "one block reverses 16 of 10 symbols in 100 %; here a decoder, 1 to 25 of 50",
               "UvA deep-learning tutorial 6", at_least(0.999), lambda: _older("reversal", "exact_match"),
               "exact match of 10,000"),
)  # fmt: skip
