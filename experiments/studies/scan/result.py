"""Exact match on SCAN's held-out shorter commands and on the longer ones, by kind of positions."""

from pathlib import Path
from typing import Any

from experiments.studies.conclude import Row, mean, table

ABSOLUTE, RELATIVE = "sinusoidal", "rotary"
LEARNED, GAIN, ALIKE = 0.95, 0.2, 0.02
FIGURES = ("shorter", "longer")


def shares(rows: list[Row], kind: str, figure: str) -> list[float]:
    """Returns a figure of each seed; 0 for a run without a result."""
    found = sorted((row for row in rows if row["model.positions"] == kind), key=lambda row: row["seed"])
    return [row.get(figure, 0.0) for row in found]


def gains(rows: list[Row]) -> list[float]:
    """Returns by how much relative positions are better than absolute ones on longer commands, for each seed."""
    return [a - b for a, b in zip(*(shares(rows, kind, "longer") for kind in (RELATIVE, ABSOLUTE)), strict=True)]


def text(rows: list[Row]) -> str:
    kinds = (ABSOLUTE, RELATIVE)
    means = {figure: {kind: mean(shares(rows, kind, figure)) for kind in kinds} for figure in FIGURES}
    lines = [
        [kind, *(f"{means[figure][kind]:.3f} ({_listed(shares(rows, kind, figure))})" for figure in FIGURES)]
        for kind in kinds
    ]
    learned = min(means["shorter"].values()) >= LEARNED
    better = min(gains(rows)) > 0 and mean(gains(rows)) >= GAIN
    apart = abs(means["shorter"][RELATIVE] - means["shorter"][ABSOLUTE])

    def verdict(holds: bool) -> str:
        return "**is undecided**" if not learned else "**holds**" if holds else "**does not hold**"

    return (
        f"Mean exact match, and that of each seed:\n\n{table(['positions', 'shorter, held out', 'longer'], lines)}\n"
        "![exact match by positions](plot.png)\n\n## Conclusion\n\n"
        f"- On held-out shorter commands both kinds have at least {min(means['shorter'].values()):.3f}; the test asks "
        f"for {LEARNED}.\n"
        f"- On longer commands rotary positions have {means['longer'][RELATIVE]:.3f} and sinusoids "
        f"{means['longer'][ABSOLUTE]:.3f}: the first claim {verdict(better)}.\n"
        f"- On shorter ones they are {apart:.3f} apart: the second claim {verdict(apart <= ALIKE)}.\n"
    )


def _listed(values: list[float]) -> str:
    return ", ".join(f"{value:.3f}" for value in values)


def draw(path: Path, rows: list[Row]) -> None:
    """Draws the share of right answers, a dot for each run."""
    from matplotlib.figure import Figure

    kinds = (RELATIVE, ABSOLUTE)
    figure = Figure(figsize=(7, 2.6), layout="constrained")
    axes: Any = figure.add_subplot()
    for name, color, marker in (("shorter", "tab:gray", "s"), ("longer", "tab:blue", "o")):
        dots = [(share, i) for i, kind in enumerate(kinds) for share in shares(rows, kind, name)]
        label = {"shorter": "shorter, held out", "longer": "longer than in training"}[name]
        axes.plot(*zip(*dots, strict=True), marker, color=color, label=label, alpha=0.7)
    axes.set(yticks=range(len(kinds)), yticklabels=kinds, xlim=(-0.03, 1.03), ylim=(-0.5, len(kinds) - 0.5))
    axes.set_xlabel("exact match of the actions (higher is better)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    axes.legend(frameon=False, loc="upper center")
    figure.savefig(path, dpi=150)
