"""Recall of softmax and linear attention, by width and number of pairs."""

from pathlib import Path

from experiments.studies.study import (
    SOLVED,
    Cell,
    Line,
    Row,
    Verdict,
    best,
    bracketed,
    by_rate,
    chart,
    records,
    steps_to,
    table,
)

KINDS = {"softmax": "tab:blue", "linear": "tab:orange"}
NAMES = ("model.attention", "model.d_model", "task.pairs")
Cells = dict[tuple[str, int, int], Cell]


def cells(rows: list[Row]) -> Cells:
    """Returns the cell for each (kind, width, pairs): the rate with the highest mean; on ties, the fastest.

    Rows of runs that reached 0.99 have `solved_at`, the step of the first such evaluation.
    """
    return best(rows, NAMES, rank)


def rank(cell: Cell) -> tuple[float, float]:
    return round(cell.mean("recalled"), 6), -sum(cell.values("solved_at"))


def smallest(found: Cells, kind: str, pairs: int) -> int | None:
    """Returns the smallest width at which the mean over seeds is solved, or None."""
    of = ((width, cell) for (k, width, n), cell in sorted(found.items()) if (k, n) == (kind, pairs))
    return next((width for width, cell in of if cell.mean("recalled") >= SOLVED), None)


def with_steps(rows: list[Row]) -> list[Row]:
    """Returns the rows with `solved_at`, from the runs' metrics."""
    steps = {point: steps_to(of_run, "recalled") for point, of_run in records("recall").items()}
    return [{**row, "solved_at": at} if (at := steps.get(row["point"])) else row for row in rows]


def verdicts(rows: list[Row]) -> list[Verdict]:
    found = cells(with_steps(rows))
    numbers = sorted({pairs for _, _, pairs in found})
    lowest = min(cell.mean("recalled") for (kind, _, _), cell in found.items() if kind == "softmax")
    few, many = (smallest(found, "linear", pairs) for pairs in (numbers[0], numbers[-1]))
    grows = few is not None and (many is None or many > few)
    # Both claims depend on unsolved cells, which another rate might solve.
    known = all(bracketed(with_steps(rows), NAMES, rank).values())
    of_width = Verdict(grows, grows) if known else Verdict(grows, None, "not bracketed")
    return [Verdict(lowest, lowest >= SOLVED).if_bracketed(known), of_width]


def tables(rows: list[Row]) -> dict[str, str]:
    found, lines = cells(with_steps(rows)), []
    for width, pairs in sorted({(width, pairs) for _, width, pairs in found}, key=lambda place: place[::-1]):
        line = [str(pairs), str(width)]
        line += [f"{found[k, width, pairs].mean('recalled'):.3f} at {found[k, width, pairs].rate:g}" for k in KINDS]
        lines.append(line)
    header = ["pairs", "width", *KINDS]
    return {"result": table(header, lines)}


def conclusion(rows: list[Row]) -> list[str]:
    (first, second), found = verdicts(rows), cells(with_steps(rows))
    below = sum(cell.mean("recalled") < SOLVED for (kind, _, _), cell in found.items() if kind == "linear")
    widest, most = max(width for _, width, _ in found), max(pairs for _, _, pairs in found)
    tried = by_rate(rows, NAMES)
    at = [[f"{cell.mean('recalled'):.3f}" for cell in tried[kind, widest, most]] for kind in KINDS]
    rates = [f"{cell.rate:g}" for cell in tried["softmax", widest, most]]
    shares = "; ".join(f"at {rate} {' and '.join(each)}" for rate, *each in zip(rates, *at, strict=True))
    return [
        f"Softmax attention recalls as little as {first.figure:.3f}: the first claim is {first}.",
        f"Linear attention stays below {SOLVED} in {below} of {len(found) // 2} cells: the second claim is {second}.",
        f"Mean share of {most} pairs at width {widest}, with softmax and linear attention: {shares}.",
    ]


def draw(path: Path, rows: list[Row]) -> None:
    """Plots the mean share recalled by number of pairs, a panel for each width."""
    found, panels = cells(with_steps(rows)), dict[str, list[Line]]()
    for width in sorted({width for _, width, _ in found}):
        for kind, color in KINDS.items():
            of = sorted(
                (pairs, cell.mean("recalled")) for (k, w, pairs), cell in found.items() if (k, w) == (kind, width)
            )
            pairs, shares = zip(*of, strict=True)
            panels.setdefault(f"width {width}", []).append(Line(kind, pairs, shares, color=color))
    chart(path, panels, xlabel="pairs", ylabel="values recalled, mean of the seeds", ylim=(0, 1.05))
