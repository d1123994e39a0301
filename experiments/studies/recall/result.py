"""What softmax and linear attention recall, by width and number of pairs."""

import json
import statistics
from pathlib import Path
from typing import Any, NamedTuple

from experiments.studies.conclude import Row, mean, table

KINDS = ("softmax", "linear")
SOLVED = 0.99


class Cell(NamedTuple):
    """The runs of one kind, width and number of pairs at the best of their learning rates."""

    rate: float
    shares: list[float]  # recalled, of each seed
    steps: list[int]  # to the first evaluation of at least 0.99, of the seeds that reached it

    @property
    def share(self) -> float:
        return mean(self.shares)


def cells(rows: list[Row]) -> dict[tuple[str, int, int], Cell]:
    """Returns the cell of each (kind, width, pairs): the rate with the highest mean, of several the fastest.

    A row of a run that reached 0.99 has `solved_at`, the step of its first such evaluation.
    """
    runs: dict[tuple[str, int, int], dict[float, list[Row]]] = {}
    for row in rows:
        key = (row["model.attention"], row["model.d_model"], row["task.pairs"])
        runs.setdefault(key, {}).setdefault(row["optimizer.learning_rate"], []).append(row)
    return {key: max((_cell(rate, of) for rate, of in by_rate.items()), key=_rank) for key, by_rate in runs.items()}


def _cell(rate: float, runs: list[Row]) -> Cell:
    shares = [row.get("recalled", 0.0) for row in runs]
    return Cell(rate, shares, [row["solved_at"] for row in runs if "solved_at" in row])


def _rank(cell: Cell) -> tuple[float, float]:
    return round(cell.share, 6), -sum(cell.steps)


def smallest(found: dict[tuple[str, int, int], Cell], kind: str, pairs: int) -> int | None:
    """Returns the smallest width at which the mean of the seeds is solved, or None."""
    return next(
        (d for (k, d, n), cell in sorted(found.items()) if (k, n) == (kind, pairs) and cell.share >= SOLVED), None
    )


def with_steps(rows: list[Row]) -> list[Row]:
    """Returns the rows with `solved_at`, from the records of the runs."""
    found = {}
    for line in Path(__file__).with_name("runs.jsonl").read_text().splitlines():
        run = json.loads(line)
        reached = [record["step"] for record in run["metrics"] if record.get("recalled", 0) >= SOLVED]
        if reached:
            found[run["point"]] = {"solved_at": min(reached)}
    return [{**row, **found.get(row["point"], {})} for row in rows]


def n_solved(found: dict[tuple[str, int, int], Cell], kind: str) -> int:
    """Returns the number of cells of a kind whose mean of the seeds is solved."""
    return sum(cell.share >= SOLVED for (of, _, _), cell in found.items() if of == kind)


def lowest_share(found: dict[tuple[str, int, int], Cell]) -> float:
    """Returns the lowest share among the cells of softmax attention."""
    return min(cell.share for (kind, _, _), cell in found.items() if kind == "softmax")


def text(rows: list[Row]) -> str:
    found = cells(with_steps(rows))
    widths, numbers = sorted({width for _, width, _ in found}), sorted({pairs for _, _, pairs in found})
    header = ["pairs", "width", *(f"{kind}{what}" for kind in KINDS for what in ("", ", steps to 0.99", ", rate"))]
    lines = []
    for pairs in numbers:
        for width in widths:
            of = [found[kind, width, pairs] for kind in KINDS]
            steps = [f"{statistics.median(c.steps):.0f}" if len(c.steps) == len(c.shares) else "" for c in of]
            shown = [[f"{c.share:.3f}", step, f"{c.rate:g}"] for c, step in zip(of, steps, strict=True)]
            lines.append([str(pairs), str(width), *shown[0], *shown[1]])
    lowest = lowest_share(found)
    least = {kind: [smallest(found, kind, pairs) for pairs in numbers] for kind in KINDS}
    n_unsolved = sum(kind == "linear" and cell.share < SOLVED for (kind, _, _), cell in found.items())
    words = {kind: ", ".join(str(width or "none") for width in of) for kind, of in least.items()}
    return (
        f"{table(header, lines)}\n![share recalled by width](plot.png)\n\n## Conclusion\n\n"
        f"- Softmax attention recalls at least {lowest:.3f} in every cell: the first claim "
        f"{_verdict(lowest >= SOLVED)}.\n"
        f"- Linear attention stays below 0.99 in {n_unsolved} of {len(widths) * len(numbers)} cells. The smallest "
        f"widths that solve {', '.join(map(str, numbers))} pairs are {words['linear']}, and with softmax "
        f"{words['softmax']}: the second claim {_verdict(grows(least['linear']))}.\n"
        f"- At width {widths[-1]}, the mean share of {numbers[-1]} pairs is "
        f"{found['softmax', widths[-1], numbers[-1]].share:.3f} with softmax attention and "
        f"{found['linear', widths[-1], numbers[-1]].share:.3f} with linear attention.\n"
    )


def grows(least: list[int | None]) -> bool:
    """Returns whether the last number of pairs needs more width than the first; None is more than any."""
    first, last = least[0], least[-1]
    return first is not None and (last is None or last > first)


def _verdict(holds: bool) -> str:
    return "**holds**" if holds else "**does not hold**"


def draw(path: Path, rows: list[Row]) -> None:
    """Draws the share recalled by number of pairs, a line for each kind and width, with the seeds as dots."""
    from matplotlib.figure import Figure

    found = cells(with_steps(rows))
    widths, numbers = sorted({width for _, width, _ in found}), sorted({pairs for _, _, pairs in found})
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    axes: Any = None
    for place, width in enumerate(widths):
        axes = figure.add_subplot(1, len(widths), place + 1, sharey=axes, title=f"width {width}")
        for kind, color in zip(KINDS, ("tab:blue", "tab:orange"), strict=True):
            of = [found[kind, width, pairs] for pairs in numbers]
            axes.plot(numbers, [cell.share for cell in of], "-", color=color, label=kind)
            for pairs, cell in zip(numbers, of, strict=True):
                axes.plot([pairs] * len(cell.shares), cell.shares, "o", color=color, markersize=3)
        axes.set_xscale("log", base=2)
        axes.set_xticks(numbers, list(map(str, numbers)))
        axes.set(xlabel="pairs", ylim=(0, 1.05))
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("values recalled")
    figure.axes[0].legend(frameon=False)
    figure.savefig(path, dpi=150)
