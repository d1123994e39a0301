"""Bits per character of held-out text by kind of positions, each at its best rate."""

from pathlib import Path

from experiments.studies.study import Cell, Line, Row, Verdict, best, bracketed, by_rate, chart, listed, table

ADDED = ("learned", "sinusoidal", "sinusoidal_trained")
APART, FIGURE = 0.02, "bits_per_character"


def bits(cell: Cell) -> float:
    """Returns the mean bits per character over seeds; infinite if a run has no result."""
    return cell.mean(FIGURE, float("inf"))


def cells(rows: list[Row]) -> dict[str, Cell]:
    """Returns the runs for each kind of positions at the rate with the fewest bits, the best kind first."""
    found = best(rows, ("model.positions",), lambda cell: -bits(cell))
    return {kind: cell for (kind,), cell in sorted(found.items(), key=lambda item: bits(item[1]))}


def verdicts(rows: list[Row]) -> list[Verdict]:
    of = {kind: bits(cell) for kind, cell in cells(rows).items()}
    added = min(of[kind] for kind in ADDED)
    leads = [added - of["rotary"], added - of["alibi"], of["learned"] - of["sinusoidal_trained"]]
    is_inside = bracketed(rows, ("model.positions",), lambda cell: -bits(cell))
    against = [ADDED, ADDED, ("learned",)]
    return [
        *(
            Verdict(lead, lead > APART).against(*(is_inside[kind,] for kind in kinds))
            for lead, kinds in zip(leads, against, strict=True)
        ),
        Verdict(of["none"], [*of][-1] == "none").against(is_inside["none",]),
    ]


def tables(rows: list[Row]) -> dict[str, str]:
    lines = [
        [kind, f"{cell.rate:g}", f"{bits(cell):.3f}", listed(cell.values(FIGURE, float("nan")))]
        for kind, cell in cells(rows).items()
    ]
    return {"result": table(["positions", "rate", "mean bits", "of each seed"], lines)}


def conclusion(rows: list[Row]) -> list[str]:
    rotary, alibi, start, without = verdicts(rows)
    inside = bracketed(rows, ("model.positions",), lambda cell: -bits(cell))
    edge = ", ".join(kind for (kind,), is_inside in inside.items() if not is_inside)
    return [
        f"Rotary is {rotary.figure:.3f} bits better than the best of the added kinds: the first claim {rotary}.",
        f"ALiBi is {alibi.figure:.3f} bits better: the second {alibi}.",
        f"A table that begins random is {start.figure:.3f} bits worse than one from sinusoids: the third {start}.",
        f"The worst kind is {[*cells(rows)][-1]}: the fourth {without}.",
        f"The best rate is the lowest or the highest tried for {edge}: other rates may help these.",
    ]


def draw(path: Path, rows: list[Row]) -> None:
    """Plots bits per character by rate, a line for each kind."""
    of_rates = by_rate(rows, ("model.positions",))
    lines = [Line(kind, [c.rate for c in of_rates[kind,]], [*map(bits, of_rates[kind,])]) for kind in cells(rows)]
    chart(path, {"": lines}, xscale="log", xlabel="learning rate", ylabel="bits per character of unseen text")
