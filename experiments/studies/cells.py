"""The runs of a study by what is compared, each kind at the best of its learning rates."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments.studies.conclude import Row, mean

RATE = "optimizer.learning_rate"
SOLVED = 0.99


class Cell(NamedTuple):
    """The runs of one kind at one learning rate, one for each seed."""

    rate: float
    rows: list[Row]

    def values(self, figure: str, absent: float = 0.0) -> list[float]:
        """Returns a figure of each seed; `absent` for a run without a result."""
        return [row.get(figure, absent) for row in self.rows]


def by_rate(rows: Sequence[Row], names: Sequence[str]) -> dict[tuple[Any, ...], list[Cell]]:
    """Returns the cells of each combination of the values of these columns, one for each rate, the lowest first."""
    found: dict[tuple[Any, ...], dict[float, list[Row]]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), {}).setdefault(row[RATE], []).append(row)
    return {key: [Cell(rate, of) for rate, of in sorted(rates.items())] for key, rates in found.items()}


def best(
    rows: Sequence[Row], names: Sequence[str], rank: Callable[[Cell], float | tuple[float, ...]]
) -> dict[tuple[Any, ...], Cell]:
    """Returns, of each combination, the cell that ranks highest; the lowest rate of equal ones."""
    return {key: max(of, key=rank) for key, of in by_rate(rows, names).items()}


def mean_of(figure: str) -> Callable[[Cell], float]:
    """Returns a rank of cells: the mean of a figure over the seeds, without the noise of its last bits."""
    return lambda cell: round(mean(cell.values(figure)), 6)


def records(study: str) -> dict[str, list[Row]]:
    """Returns the records of each kept run of a study by the run's point."""
    path = Path(__file__).parent / study / "runs.jsonl"
    runs = map(json.loads, path.read_text().splitlines()) if path.exists() else ()
    return {run["point"]: run["metrics"] for run in runs}


def steps_to(of_run: Sequence[Row], figure: str, least: float = SOLVED) -> int | None:
    """Returns the step of the first record whose figure is at least `least`, or None."""
    return next((record["step"] for record in of_run if record.get(figure, -1.0) >= least), None)


def listed(values: Sequence[float], form: str = ".3f") -> str:
    return ", ".join(f"{value:{form}}" for value in values)


def verdict(holds: bool) -> str:
    return "**holds**" if holds else "**does not hold**"
