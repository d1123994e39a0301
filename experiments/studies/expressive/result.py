"""Which delayed sums softmax and expressive attention learn, by base and positions, each at its best rate."""

import math
from collections.abc import Sequence
from pathlib import Path

from experiments.studies.study import (
    SOLVED,
    Cell,
    Line,
    Row,
    Verdict,
    best,
    by_exact_match,
    chart,
    dots,
    listed,
    mean,
    reached,
    records,
    table,
)

KINDS = {"softmax": "tab:blue", "expressive": "tab:orange"}
NAMES = ("task.base", "model.positions", "model.attention")
ALIKE, NEAR, UNSOLVED = 0.02, 0.05, 0.5
Cells = dict[tuple[int, str, str], Cell]


def cells(rows: list[Row]) -> Cells:
    """Returns the runs of each base, positions and attention at the rate with the highest mean exact match."""
    return best(rows, NAMES, by_exact_match)


def margins(found: Cells) -> dict[tuple[int, str], float]:
    """Returns by how much the mean exact match of expressive attention is above that of softmax attention."""
    means = {key: cell.mean("exact_match") for key, cell in found.items()}
    return {(b, p): means[b, p, "expressive"] - means[b, p, "softmax"] for b, p, kind in found if kind == "softmax"}


def alone(found: Cells, kind: str) -> list[tuple[int, str]]:
    """Returns the base and positions that all seeds of one kind of attention solve, and not all of the other."""
    solved = {key: min(cell.values("exact_match")) >= SOLVED for key, cell in found.items()}
    (other,) = {*KINDS} - {kind}
    return [place for place in margins(found) if solved[*place, kind] and not solved[*place, other]]


def knows_parity(loss: float, base: int) -> bool:
    """Returns whether a loss is that of a guess among the numbers of the right parity, ln (base / 2)."""
    return base % 2 == 0 and abs(loss - math.log(base / 2)) < NEAR


def at_plateau(of_run: Sequence[Row], base: int) -> int:
    """Returns how many of the steps of a run have a training loss like that of `knows_parity`, by its records."""
    steps, last = 0, 0
    for record in of_run:
        if "loss" in record:
            steps += (record["step"] - last) * knows_parity(record["loss"], base)
            last = record["step"]
    return steps


def stuck(rows: list[Row]) -> tuple[int, int]:
    """Returns how many runs of even bases end below half of the series, and how many of these know the parity alone."""
    low = [row for row in rows if row["task.base"] % 2 == 0 and row.get("exact_match", 0.0) < UNSOLVED]
    return len(low), sum(knows_parity(row.get("train_loss", math.inf), row["task.base"]) for row in low)


def verdicts(rows: list[Row]) -> list[Verdict]:
    found = cells(rows)
    of_places, only, (n_low, n_parity) = margins(found), len(alone(found, "expressive")), stuck(rows)
    bases = sorted({base for base, _ in of_places})
    low, high = (mean(m for (base, _), m in of_places.items() if base == at) for at in (bases[0], bases[-1]))
    lowest = min(of_places.values())
    return [
        Verdict(lowest, lowest >= -ALIKE),
        Verdict(high - low, high > low + ALIKE),
        Verdict(only, only > 0),
        Verdict(n_parity / n_low if n_low else 0.0, 2 * n_parity > n_low),
    ]


def tables(rows: list[Row]) -> dict[str, str]:
    of_runs, lines = records("expressive"), []
    for (base, positions, kind), cell in cells(rows).items():
        plateau = ", ".join(str(at_plateau(of_runs[row["point"]], base)) for row in cell.rows) if base % 2 == 0 else "–"
        figures = [f"{cell.rate:g}", listed(cell.values("exact_match")), reached(cell, of_runs), plateau]
        lines.append([str(base), positions, kind, *figures])
    header = ["base", "positions", "attention", "rate", "exact match", "steps to 0.99", "steps at ln (base / 2)"]
    return {"result": table(header, lines)}


def draw(path: Path, rows: list[Row]) -> None:
    """Draws the exact match by step at the best rate, a picture for each base and positions, a line for each run."""
    of_runs, panels = records("expressive"), dict[str, list[Line]]()
    for (base, positions, kind), cell in cells(rows).items():
        for number, row in enumerate(cell.rows):
            of = [(r["step"], r["exact_match"]) for r in of_runs[row["point"]] if "exact_match" in r]
            line = dots(None if number else kind, of, "-", KINDS[kind])
            panels.setdefault(f"base {base}, {positions}", []).append(line)
    chart(path, panels, xlabel="step", ylabel="exact match", ylim=(-0.03, 1.05))
