"""Exact match on SCAN's held-out shorter commands and on the longer ones, by kind of positions."""

from pathlib import Path

from experiments.studies.study import Row, Verdict, chart, dots, listed, mean, table

ABSOLUTE, RELATIVE = "sinusoidal", "rotary"
LEARNED, GAIN, ALIKE = 0.95, 0.2, 0.02
FIGURES = {"shorter": "shorter, held out", "longer": "longer"}


def shares(rows: list[Row], kind: str, figure: str) -> list[float]:
    """Returns a metric of each seed; 0 for a run without a result."""
    found = sorted((row for row in rows if row["model.positions"] == kind), key=lambda row: row["seed"])
    return [row.get(figure, 0.0) for row in found]


def verdicts(rows: list[Row]) -> list[Verdict]:
    gains = [a - b for a, b in zip(*(shares(rows, kind, "longer") for kind in (RELATIVE, ABSOLUTE)), strict=True)]
    known = [mean(shares(rows, kind, "shorter")) for kind in (RELATIVE, ABSOLUTE)]
    apart = abs(known[0] - known[1])
    found = [(mean(gains), min(gains) > 0 and mean(gains) >= GAIN), (apart, apart <= ALIKE)]
    learned = min(known) >= LEARNED
    # Each kind has one rate.
    return [Verdict(figure, holds and learned).if_bracketed(False).against(False) for figure, holds in found]


def tables(rows: list[Row]) -> dict[str, str]:
    of = {kind: [shares(rows, kind, figure) for figure in FIGURES] for kind in (ABSOLUTE, RELATIVE)}
    lines = [[kind, *(f"{mean(each):.3f} ({listed(each)})" for each in found)] for kind, found in of.items()]
    return {"result": table(["positions", *FIGURES.values()], lines)}


def conclusion(rows: list[Row]) -> list[str]:
    longer, shorter = verdicts(rows)
    of = {(kind, figure): mean(shares(rows, kind, figure)) for kind in (ABSOLUTE, RELATIVE) for figure in FIGURES}
    return [
        f"On longer commands rotary positions have {of[RELATIVE, 'longer']:.3f} and sinusoids "
        f"{of[ABSOLUTE, 'longer']:.3f}: the first claim is {longer}.",
        f"On held-out shorter ones they are {shorter.figure:.3f} apart: the second is {shorter}.",
    ]


def draw(path: Path, rows: list[Row]) -> None:
    """Plots exact match, a dot for each run."""
    lines = []
    for figure, label in FIGURES.items():
        lines.append(dots(label, [(x, kind) for kind in (RELATIVE, ABSOLUTE) for x in shares(rows, kind, figure)]))
    chart(path, {"": lines}, xlabel="exact match of the actions (higher is better)", xlim=(-0.03, 1.03))
