"""The entries of the race, and the table of its page."""

import csv
import math
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from scipy.stats import t as student

from experiments.runner import RESULTS
from fxf.reports.tables import Row, to_markdown

KEPT = RESULTS / "race"
PAGE = Path(__file__).with_name("README.md")
ENTRIES = {"characters:nanogpt_cpu": 1.88, "characters:fast": 1.88, "characters:fast_160": 1.60}  # with their targets
LEVEL = 0.95


def bound(losses: list[float]) -> float:
    """Returns the upper end of the one-sided interval for the mean loss over seeds, by Student's t."""
    n = len(losses)
    return float(mean(losses) + student.ppf(LEVEL, n - 1) * stdev(losses) / math.sqrt(n))


def record(name: str, rows: list[dict[str, Any]]) -> Row:
    """Returns the row of an entry from those of its runs."""
    columns = ("seconds", "validation_loss", "gigaflops")
    seconds, losses, speeds = ([float(row[column]) for row in rows] for column in columns)
    return {
        "config": name,
        "target": f"{ENTRIES[name]:.2f}",
        "seconds": f"{median(seconds):.1f} ({min(seconds):.1f} to {max(seconds):.1f})",
        "validation loss": f"{mean(losses):.4f} ({stdev(losses):.4f})",
        "bound": f"{bound(losses):.5f}",
        "": "reached" if bound(losses) <= ENTRIES[name] else "missed",
        "GFLOP/s": f"{median(speeds):.0f}",
    }


def table() -> str:
    """Returns the table of the page, from kept results."""
    runs = list(csv.DictReader((KEPT / "table.csv").read_text().splitlines()))
    records = [record(name, [run for run in runs if run["entry"] == name]) for name in ENTRIES]
    return to_markdown(records, records[0])
