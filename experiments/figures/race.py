"""The figures of the race's page."""

import math
from statistics import mean, median, stdev

from scipy.stats import t as student

from experiments.figures.kept import Kept, Row
from experiments.figures.pieces import Conclusion, Page, table
from experiments.race.entries import ENTRIES, TRIALS

LEVEL = 0.95


def bound(losses: list[float]) -> float:
    """Returns the upper end of the one-sided interval of the mean loss over seeds, by Student's t."""
    n = len(losses)
    return mean(losses) + student.ppf(LEVEL, n - 1) * stdev(losses) / math.sqrt(n)


def entry(name: str, rows: list[Row]) -> list[str]:
    seconds, losses = ([row[column] for row in rows] for column in ("seconds", "validation_loss"))
    reached = bound(losses) <= ENTRIES[name]
    return [
        f"`{name}`",
        f"{ENTRIES[name]:.2f}",
        f"{median(seconds):.1f} ({min(seconds):.1f} to {max(seconds):.1f})",
        f"{mean(losses):.4f} ({stdev(losses):.4f})",
        f"{bound(losses):.5f}",
        "reached" if reached else "missed",
        f"{median(row['gigaflops'] for row in rows):.0f}",
    ]


def race(kept: Kept) -> Page:
    rows = kept.measured("race")
    header = ["config", "target", "seconds", "validation loss", "bound", "", "GFLOP/s"]
    entries = [entry(name, [row for row in rows if row["entry"] == name]) for name in ENTRIES]
    verdicts = {name: kept.trial(f"race/{name}") for name in TRIALS}
    cells = [
        [TRIALS[name].words, f"{told['effect']:+.4f}", f"{told['low']:+.4f} to {told['high']:+.4f}", str(told["pairs"])]
        for name, told in verdicts.items()
    ]
    best = min(verdicts.values(), key=lambda told: told["effect"])
    return Page(
        [
            table(header, entries, "lrrrrlr"),
            table(["instead", "loss", "interval", "pairs"], cells, "lrrr"),
            Conclusion("The highest rate is the best of AdamW's", [*verdicts.values()][-1] == best),
        ],
        {
            "what the race asks": ["1.88, and of 1.60", "the targets 1.88 and 1.60"],
            "a size of the text": ["1,115,394 characters", "The first 90 % train"],
            "a rule of the race": ["Seeds 0 to 4", "0.95 interval", "1,024 × 1,024"],
        },
    )


PAGES = {"experiments/race/README.md": race}
