"""The record of the race: a row of its table for each entry."""

import math
from statistics import mean, median, stdev
from typing import Any

from scipy.stats import t as student

from experiments.race.entries import ENTRIES

LEVEL = 0.95


def bound(losses: list[float]) -> float:
    """Returns the upper end of the one-sided interval of the mean loss over seeds, by Student's t."""
    n = len(losses)
    return mean(losses) + student.ppf(LEVEL, n - 1) * stdev(losses) / math.sqrt(n)


def entry(name: str, rows: list[dict[str, Any]]) -> list[str]:
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
