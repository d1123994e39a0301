"""Bits per character of held-out text by kind of position, each at its best rate."""

from pathlib import Path
from typing import Any

from experiments.studies.cells import Cell, best, by_rate, listed, verdict
from experiments.studies.conclude import Row, mean, table

RELATIVE, ADDED = ("rotary", "alibi"), ("learned", "sinusoidal", "sinusoidal_trained")
APART, FIGURE = 0.02, "bits_per_character"


def bits(cell: Cell) -> float:
    """Returns the mean bits per character over the seeds; infinite if a run has no result."""
    return mean(cell.values(FIGURE, float("inf")))


def cells(rows: list[Row]) -> dict[str, Cell]:
    """Returns the runs of each kind of positions at the rate with the fewest bits, the best kind first."""
    found = best(rows, ("model.positions",), lambda cell: -bits(cell))
    return {kind: cell for (kind,), cell in sorted(found.items(), key=lambda item: bits(item[1]))}


def lead(found: dict[str, Cell], kind: str) -> float:
    """Returns by how many bits a kind is better than the best of those that are added to embeddings."""
    return min(bits(found[other]) for other in ADDED) - bits(found[kind])


def text(rows: list[Row]) -> str:
    found = cells(rows)
    lines = [
        [kind, f"{cell.rate:g}", f"{bits(cell):.3f}", listed(cell.values(FIGURE, float("nan")))]
        for kind, cell in found.items()
    ]
    return (
        "Each kind at its best rate, three seeds:\n\n"
        f"{table(['positions', 'rate', 'mean bits', 'of each seed'], lines)}\n"
        f"![bits per character](plot.png)\n\n## Conclusion\n\n{_conclusion(found, rows)}"
    )


def _conclusion(found: dict[str, Cell], rows: list[Row]) -> str:
    said = [
        f"- {name} is {lead(found, kind):+.3f} bits better than the best of the kinds that are added to embeddings: "
        f"the {number} claim {verdict(lead(found, kind) > APART)}.\n"
        for number, name, kind in (("first", "Rotary", "rotary"), ("second", "ALiBi", "alibi"))
    ]
    worse = bits(found["learned"]) - bits(found["sinusoidal_trained"])
    worst = list(found)[-1]
    rates = sorted({row["optimizer.learning_rate"] for row in rows})
    edge = [kind for kind, cell in found.items() if cell.rate in (rates[0], rates[-1])]
    return (
        "".join(said)
        + f"- A table that begins random is {worse:+.3f} bits worse than one that begins as sinusoids: the "
        f"third claim {verdict(worse > APART)}.\n"
        f"- The worst of the {len(found)} kinds is {worst}: the fourth claim {verdict(worst == 'none')}.\n"
        f"- The best rate is the lowest or the highest tried for {', '.join(edge) or 'none'}: these may gain by other "
        "rates.\n"
    )


def draw(path: Path, rows: list[Row]) -> None:
    """Draws the bits per character by rate, a line for each kind and a dot for each seed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes: Any = figure.add_subplot()
    of_rates = by_rate(rows, ("model.positions",))
    for number, kind in enumerate(cells(rows)):
        of, color = of_rates[kind,], f"C{number}"
        axes.plot([cell.rate for cell in of], [bits(cell) for cell in of], "-", color=color, label=kind)
        for cell in of:
            axes.plot([cell.rate] * len(cell.rows), cell.values(FIGURE, float("nan")), "o", color=color, markersize=3)
    rates = sorted({cell.rate for of in of_rates.values() for cell in of})
    axes.set(xscale="log", xlabel="learning rate", ylabel="bits per character of unseen text (lower is better)")
    axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(path, dpi=120)
