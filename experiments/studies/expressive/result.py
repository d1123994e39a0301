"""Exact match of softmax and expressive attention on delayed sums, by base and positions, each at its best rate."""

import math
from pathlib import Path

from experiments.studies.study import (
    SOLVED,
    Cell,
    Line,
    Row,
    Verdict,
    best,
    bracketed,
    by_exact_match,
    chart,
    dots,
    listed,
    mean,
    records,
    table,
)

KINDS = {"softmax": "tab:blue", "expressive": "tab:orange"}
NAMES = ("task.base", "model.positions", "model.attention")
ALIKE, NEAR, UNSOLVED = 0.02, 0.05, 0.5
Cells = dict[tuple[int, str, str], Cell]


def cells(rows: list[Row]) -> Cells:
    """Returns the runs for each base, positions and attention at the rate with the highest mean exact match."""
    return best(rows, NAMES, by_exact_match)


def margins(found: Cells) -> dict[tuple[int, str], float]:
    """Returns the mean exact match of expressive attention minus that of softmax attention."""
    means = {key: cell.mean("exact_match") for key, cell in found.items()}
    return {(b, p): means[b, p, "expressive"] - means[b, p, "softmax"] for b, p, kind in found if kind == "softmax"}


def alone(found: Cells, kind: str) -> list[tuple[int, str]]:
    """Returns each (base, positions) that all seeds of one kind of attention solve, and not all of the other."""
    solved = {key: min(cell.values("exact_match")) >= SOLVED for key, cell in found.items()}
    (other,) = {*KINDS} - {kind}
    return [place for place in margins(found) if solved[*place, kind] and not solved[*place, other]]


def knows_parity(loss: float, base: int) -> bool:
    """Returns whether a loss is that of a guess among numbers of the correct parity, ln (base / 2)."""
    return base % 2 == 0 and abs(loss - math.log(base / 2)) < NEAR


def stuck(rows: list[Row]) -> tuple[int, int]:
    """Returns how many runs with even bases solve less than half of the series, and how many know only the parity."""
    low = [row for row in rows if row["task.base"] % 2 == 0 and row.get("exact_match", 0.0) < UNSOLVED]
    return len(low), sum(knows_parity(row.get("train_loss", math.inf), row["task.base"]) for row in low)


def verdicts(rows: list[Row]) -> list[Verdict]:
    found = cells(rows)
    of_places, only, (n_low, n_parity) = margins(found), len(alone(found, "expressive")), stuck(rows)
    bases = sorted({base for base, _ in of_places})
    low, high = (mean(m for (base, _), m in of_places.items() if base == at) for at in (bases[0], bases[-1]))
    lowest, known = min(of_places.values()), all(bracketed(rows, NAMES, by_exact_match).values())
    return [
        Verdict(lowest, lowest >= -ALIKE).if_bracketed(known),
        Verdict(high - low, high > low + ALIKE).if_bracketed(known),
        Verdict(only, only > 0).if_bracketed(known),
        Verdict(n_parity / n_low if n_low else 0.0, 2 * n_parity > n_low),
    ]


def tables(rows: list[Row]) -> dict[str, str]:
    found, lines = cells(rows), []
    for base, positions in margins(found):
        each = [found[base, positions, kind] for kind in KINDS]
        lines.append([str(base), positions, *(f"{listed(x.values('exact_match'))} at {x.rate:g}" for x in each)])
    return {"result": table(["base", "positions", *(f"{kind}, exact match" for kind in KINDS)], lines)}


def conclusion(rows: list[Row]) -> list[str]:
    found, (least, grows, only, parity) = cells(rows), verdicts(rows)
    of_places, (n_low, n_parity) = margins(found), stuck(rows)
    below = sum(margin < -ALIKE for margin in of_places.values())
    at_edge = sum(not inside for inside in bracketed(rows, NAMES, by_exact_match).values())
    return [
        f"Expressive attention is more than {ALIKE} below softmax attention in {below} of {len(of_places)} "
        f"combinations: the first claim is {least}.",
        f"The margin changes by {grows.figure:+.3f} from the lowest base to the highest: the second is {grows}.",
        f"Expressive attention alone solves {only.figure:g} combinations, softmax attention alone "
        f"{len(alone(found, 'softmax'))}: the third is {only}.",
        f"{n_low} runs of even bases end below {UNSOLVED}, {n_parity} of them within {NEAR} of ln (base / 2): the "
        f"fourth claim {parity}.",
        f"The best rate is the lowest or the highest tried in {at_edge} of {len(found)} cases.",
    ]


def draw(path: Path, rows: list[Row]) -> None:
    """Plots exact match by step at the best rate, a panel for each base and positions, a line for each run."""
    of_runs, panels = records("expressive"), dict[str, list[Line]]()
    for (base, positions, kind), cell in cells(rows).items():
        for number, row in enumerate(cell.rows):
            of = [(r["step"], r["exact_match"]) for r in of_runs[row["point"]] if "exact_match" in r]
            line = dots(None if number else kind, of, "-", KINDS[kind])
            panels.setdefault(f"base {base}, {positions}", []).append(line)
    chart(path, panels, xlabel="step", ylabel="exact match", ylim=(-0.03, 1.05))
