"""How often trials are right: null trials and planted effects, from runs that are kept.

    python -m experiments.benchmarks.verdicts

null      200 trials of a small reversal config against itself, each of at most 10 pairs. Every pair has two seeds of
          its own. Two figures decide, each in trials of its own: train_loss, and exact_match, which is not Gaussian.
shifted   80 trials of the same runs, with 0.2 nats taken from the other run's train_loss.
changed   20 trials of a small character model against one with a 5 % higher learning rate, whose effect is about
          0.01 nats. A pair has one seed.

A trial has the evidence and the rule of `fxf try`, and looks after each pair. The runs' figures by seed are in
experiments/results/verdicts/, as CSV beside their configs as JSON; the table of docs/trials.md is written there too.
"""

import csv
import json
from collections.abc import Iterator
from statistics import fmean, median, stdev
from typing import Any, NamedTuple

from scipy.stats import binomtest

from experiments.runner import RESULTS
from fxf.reports.tables import Row, to_csv, to_markdown
from fxf.trials.evidence import evidence

KEPT = RESULTS / "verdicts"
LEVEL = 0.05


class Kind(NamedTuple):
    """Trials of one kind.

    Attributes:
      first, other: the names of the arms' runs.
      metrics: the figures that decide, each in trials of its own.
      seeds: the most pairs of a trial.
      two_seeds: whether the runs of a pair have two seeds.
      shift: what is added to the other run's figure.
    """

    first: str
    other: str
    metrics: tuple[str, ...]
    trials: int
    seeds: int
    two_seeds: bool = True
    shift: float = 0.0


TRIALS = {
    "null": Kind("reversal", "reversal", ("train_loss", "exact_match"), 200, 10),
    "shifted": Kind("reversal", "reversal", ("train_loss",), 80, 24, shift=-0.2),
    "changed": Kind("characters", "characters_changed", ("test_loss",), 20, 16, two_seeds=False),
}


def runs_of(name: str) -> dict[int, dict[str, float]]:
    """Returns the figures of an arm's runs by seed."""
    rows = csv.DictReader((KEPT / f"{name}.csv").read_text().splitlines())
    return {int(row["seed"]): {key: float(value) for key, value in row.items()} for row in rows}


def trials_of(kind: Kind, metric: str) -> Iterator[Row]:
    """Yields what each trial of a kind found: its verdict, pairs, seconds, p, and effect."""
    first, other = runs_of(kind.first), runs_of(kind.other)
    for number in range(kind.trials):
        differences: list[float] = []
        seconds = 0.0
        for pair in range(number * kind.seeds, (number + 1) * kind.seeds):  # no two trials of a kind share a run
            seeds = (2 * pair, 2 * pair + 1) if kind.two_seeds else (pair, pair)
            runs = first[seeds[0]], other[seeds[1]]
            differences.append(runs[1][metric] + kind.shift - runs[0][metric])
            seconds += runs[0]["seconds"] + runs[1]["seconds"]
            found = evidence(differences, LEVEL)
            if found.is_clear:
                break
        verdict = ("higher", "neither", "lower")[(found.high < 0) - (found.low > 0) + 1]
        yield {"trial": number, "verdict": verdict, "pairs": found.n, "seconds": seconds, **found._asdict()}


def summary(name: str, metric: str, rows: list[Row], kind: Kind) -> Row:
    """Returns a row of the table: how many trials found a difference, with the interval that their number allows."""
    counts = {verdict: sum(row["verdict"] == verdict for row in rows) for verdict in ("lower", "higher")}
    clear = sum(counts.values()) if name == "null" else counts["lower"]
    low, high = binomtest(clear, len(rows)).proportion_ci()  # Clopper and Pearson 1934
    return {
        **{"trials": name, "metric": metric, "number": len(rows), **counts},
        "share": f"{clear / len(rows):.3f} ({low:.3f} to {high:.3f})",
        "pairs, median": median(row["pairs"] for row in rows),
        **{"most": max(row["pairs"] for row in rows), "at most": kind.seeds},
        "minutes, mean": fmean(row["seconds"] for row in rows) / 60,
    }


def main() -> None:
    table: list[Row] = []
    for name, kind in TRIALS.items():
        for metric in kind.metrics:
            found = list(trials_of(kind, metric))
            (KEPT / f"{name}_{metric}.csv").write_text(to_csv(found))
            table.append(summary(name, metric, found, kind))
    one, other = (runs_of(name) for name in ("characters", "characters_changed"))
    effects = [other[seed]["test_loss"] - one[seed]["test_loss"] for seed in one.keys() & other.keys()]
    effect: dict[str, Any] = {"pairs": len(effects), "effect": fmean(effects)}
    effect["standard_error"] = stdev(effects) / len(effects) ** 0.5
    record = {"level": LEVEL, "table": table, "effect_of_the_change": effect}
    (KEPT / "table.json").write_text(json.dumps(record, indent=2) + "\n")
    (KEPT / "table.md").write_text(to_markdown(table, table[0]))
    print(to_markdown(table, table[0]))


if __name__ == "__main__":
    main()
