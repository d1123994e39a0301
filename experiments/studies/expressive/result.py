"""Which delayed sums softmax and expressive attention learn, by base and positions, each at its best rate."""

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.studies.cells import RATE, SOLVED, Cell, best, listed, mean_of, records, steps_to, verdict
from experiments.studies.conclude import Row, mean, table

KINDS = ("softmax", "expressive")
NAMES = ("task.base", "model.positions", "model.attention")
ALIKE, NEAR, UNSOLVED = 0.02, 0.05, 0.5
Records = Mapping[str, Sequence[Row]]
Cells = dict[tuple[int, str, str], Cell]


def cells(rows: list[Row]) -> Cells:
    """Returns the runs of each base, positions and attention at the rate with the highest mean exact match."""
    return best(rows, NAMES, mean_of("exact_match"))


def margins(found: Cells) -> dict[tuple[int, str], float]:
    """Returns by how much the mean exact match of expressive attention is above that of softmax attention."""
    places = dict.fromkeys((base, positions) for base, positions, _ in found)
    means = {key: mean(cell.values("exact_match")) for key, cell in found.items()}
    return {place: means[*place, "expressive"] - means[*place, "softmax"] for place in places}


def by_base(of_places: dict[tuple[int, str], float]) -> dict[int, float]:
    """Returns the mean over the positions for each base."""
    bases = dict.fromkeys(base for base, _ in of_places)
    return {base: mean([value for (b, _), value in of_places.items() if b == base]) for base in bases}


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


def text(rows: list[Row]) -> str:
    found, of_runs = cells(rows), records("expressive")
    lines = []
    for (base, positions, kind), cell in found.items():
        reached = [steps_to(of_runs[row["point"]], "exact_match") for row in cell.rows]
        plateau = [at_plateau(of_runs[row["point"]], base) for row in cell.rows]
        lines.append(
            [
                *(str(base), positions, kind, f"{cell.rate:g}", listed(cell.values("exact_match"))),
                *(", ".join("–" if step is None else str(step) for step in reached), _steps(plateau, base)),
            ]
        )
    header = ["base", "positions", "attention", "rate", "exact match", "steps to 0.99", "steps at ln (base / 2)"]
    return (
        "Each kind at its best rate, two seeds:\n\n"
        f"{table(header, lines)}\n![exact match by step](plot.png)\n\n## Conclusion\n\n"
        f"{_conclusion(rows, found, of_runs)}"
    )


def _steps(plateau: list[int], base: int) -> str:
    return ", ".join(map(str, plateau)) if base % 2 == 0 else "–"


def _conclusion(rows: list[Row], found: Cells, of_runs: Records) -> str:
    by_place = margins(found)
    of_bases = by_base(by_place)
    (low, *_, high) = of_bases
    only = {kind: alone(found, kind) for kind in KINDS}
    behind = [place for place, margin in by_place.items() if margin < -ALIKE]
    n_low, n_parity = stuck(rows)
    at_any = {kind: _solved_runs(rows, kind) for kind in KINDS}
    return (
        f"- Expressive attention is more than {ALIKE} below softmax attention in {len(behind)} of {len(by_place)} "
        f"combinations of base and positions: the first claim {verdict(not behind)}.\n"
        f"- Its mean margin is {', '.join(f'{margin:+.3f} at base {base}' for base, margin in of_bases.items())}: the "
        f"second claim {verdict(of_bases[high] > of_bases[low] + ALIKE)}.\n"
        f"- It alone solves {len(only['expressive'])} of the {len(by_place)} combinations, softmax attention alone "
        f"{len(only['softmax'])}: the third claim {verdict(bool(only['expressive']))}.\n"
        f"- {n_low} runs of even bases end with an exact match below {UNSOLVED}, {n_parity} of them within {NEAR} of "
        f"ln (base / 2): the fourth claim {verdict(2 * n_parity > n_low)}.\n"
        f"- At all rates together softmax attention solves {at_any['softmax']} of {len(rows) // 2} runs and expressive "
        f"attention {at_any['expressive']}. {_pace(found, of_runs)}"
        f"- The best rate is the lowest tried, or as good, in {_at_lowest(found, rows, 'softmax')} of {len(by_place)} "
        f"combinations with softmax attention and in {_at_lowest(found, rows, 'expressive')} with expressive attention."
        " What lower rates and more steps would give is open.\n"
    )


def _at_lowest(found: Cells, rows: list[Row], kind: str) -> int:
    """Returns for how many combinations the best rate is the lowest of all."""
    lowest = min(row[RATE] for row in rows)
    return sum(key[2] == kind and cell.rate == lowest for key, cell in found.items())


def _solved_runs(rows: list[Row], kind: str) -> int:
    return sum(row["model.attention"] == kind and row.get("exact_match", 0.0) >= SOLVED for row in rows)


def _pace(found: Cells, of_runs: Records) -> str:
    """Returns a sentence on the steps to 0.99 where all runs of both kinds reach it."""
    steps: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for place in margins(found):
        of = {kind: [steps_to(of_runs[r["point"]], "exact_match") for r in found[*place, kind].rows] for kind in KINDS}
        if None not in (*of["softmax"], *of["expressive"]):
            for kind in KINDS:
                steps[kind].append(statistics.median(step for step in of[kind] if step is not None))
    if not steps["softmax"]:
        return "In no combination do all runs of both reach 0.99.\n"
    return (
        f"In the {len(steps['softmax'])} combinations in which all runs of both reach 0.99, they take "
        f"{mean(steps['softmax']):.0f} and {mean(steps['expressive']):.0f} steps to it.\n"
    )


def draw(path: Path, rows: list[Row]) -> None:
    """Draws the exact match by step at the best rate, a picture for each base and positions, a line for each run."""
    from matplotlib.figure import Figure

    found, of_runs = cells(rows), records("expressive")
    bases, kinds = (list(dict.fromkeys(key[i] for key in found)) for i in (0, 1))
    figure = Figure(figsize=(9, 6), layout="constrained")
    grid: Any = figure.subplots(len(bases), len(kinds), sharex="row", sharey=True)
    for (base, positions, kind), cell in found.items():
        axes = grid[bases.index(base), kinds.index(positions)]
        for number, row in enumerate(cell.rows):
            points = [(r["step"], r["exact_match"]) for r in of_runs[row["point"]] if "exact_match" in r]
            color = "tab:blue" if kind == "softmax" else "tab:orange"
            axes.plot(*zip(*points, strict=True), "-", color=color, label=kind if number == 0 else None, alpha=0.8)
        axes.set(title=f"base {base}, {positions}", ylim=(-0.03, 1.05))
        axes.spines[["top", "right"]].set_visible(False)
    for axes in grid[-1]:
        axes.set_xlabel("step")
    for axes in grid[:, 0]:
        axes.set_ylabel("exact match")
    grid[0, 0].legend(frameon=False)
    figure.savefig(path, dpi=120)
