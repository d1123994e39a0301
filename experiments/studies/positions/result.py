"""Exact match of reversal at the lengths of training and at longer ones, by positions, each at its best rate."""

from pathlib import Path
from typing import Any

from experiments.studies.cells import SOLVED, Cell, best, listed, mean_of, records, steps_to
from experiments.studies.conclude import Row, mean, table

NAMES = ("model.positions", "model.position_range", "model.position_stretch")
LENGTHS = (15, 20, 25, 30)  # 1.5, 2, 2.5 and 3 times the longest of training
NONE, GAIN, MORE, LEARNED = 0.01, 0.12, 0.02, 0.9
Key = tuple[str, int, float]


def cells(rows: list[Row]) -> dict[Key, Cell]:
    """Returns the runs of each kind at the rate with the highest mean exact match at the lengths of training."""
    return best(rows, NAMES, mean_of("exact_match"))


def plain(found: dict[Key, Cell]) -> dict[Key, Cell]:
    """Returns the kinds whose positions are those of the tokens, in training and in scoring."""
    return {key: cell for key, cell in found.items() if not key[1] and key[2] == 1}


def drawn(found: dict[Key, Cell]) -> dict[Key, Cell]:
    """Returns the kinds whose positions are drawn from a range in training."""
    return {key: cell for key, cell in found.items() if key[1]}


def stretched(found: dict[Key, Cell]) -> dict[Key, Cell]:
    return {key: cell for key, cell in found.items() if key[2] > 1}


def learned(of: dict[Key, Cell]) -> dict[Key, Cell]:
    """Returns those of the kinds that have learned the lengths of training."""
    return {key: cell for key, cell in of.items() if mean(cell.values("exact_match")) >= LEARNED}


def farthest(of: dict[Key, Cell]) -> float:
    """Returns the largest mean exact match of some kinds at twice the length of training, 0 of none."""
    return max((mean(cell.values("exact_match_20")) for cell in of.values()), default=0.0)


def gains(found: dict[Key, Cell], varied: dict[Key, Cell]) -> list[float]:
    """Returns how much each of the varied kinds gains at 1.5 times the length over the same kind as it is."""
    usual = {key[0]: cell for key, cell in plain(found).items()}
    return [
        mean(cell.values("exact_match_15")) - mean(usual[key[0]].values("exact_match_15"))
        for key, cell in varied.items()
    ]


def name(key: Key) -> str:
    positions, of_range, stretch = key
    return positions + (f", range {of_range}" if of_range else "") + (f", stretch {stretch:g}" if stretch > 1 else "")


def text(rows: list[Row]) -> str:
    found, of_runs = cells(rows), records("positions")
    lines = []
    for key, cell in found.items():
        steps = [steps_to(of_runs[row["point"]], "exact_match") for row in cell.rows]
        reached = ", ".join("–" if step is None else str(step) for step in steps)
        longer = [listed(cell.values(f"exact_match_{n}")) for n in LENGTHS]
        lines.append([name(key), f"{cell.rate:g}", listed(cell.values("exact_match")), reached, *longer])
    header = ["positions", "rate", "up to 10", "steps to 0.99", *map(str, LENGTHS)]
    return (
        f"Exact match of two seeds, each kind at its best rate:\n\n{table(header, lines)}\n"
        f"![exact match by length](plot.png)\n\n## Conclusion\n\n{_conclusion(found)}"
    )


def _verdict(holds: bool, of: dict[Key, Cell]) -> str:
    return "**is undecided**" if len(learned(of)) < 2 else "**holds**" if holds else "**does not hold**"


def _conclusion(found: dict[Key, Cell]) -> str:
    usual, of_range, of_stretch = plain(found), drawn(found), stretched(found)
    far = farthest(learned(usual))
    by_range, by_stretch = gains(found, of_range), gains(found, of_stretch)
    solved = [name(key) for key, cell in found.items() if mean(cell.values("exact_match")) >= SOLVED]
    counted = [gains(found, learned(of)) for of in (of_range, of_stretch)]
    return (
        f"- {len(learned(usual))} of {len(usual)} plain kinds have learned the task; the largest mean of these at "
        f"length 20 is {far:.3f}: the first claim {_verdict(far <= NONE, usual)}.\n"
        f"- {len(learned(of_range))} of {len(of_range)} kinds with a range have learned it. All gain "
        f"{listed(by_range, '+.3f')} at length 15: the second claim "
        f"{_verdict(bool(counted[0]) and mean(counted[0]) >= GAIN, of_range)}.\n"
        f"- {len(learned(of_stretch))} of {len(of_stretch)} stretched kinds have learned it. All gain "
        f"{listed(by_stretch, '+.3f')} at length 15: the third claim "
        f"{_verdict(min(counted[1], default=0.0) > MORE, of_stretch)}.\n"
        f"- {len(solved)} of {len(found)} kinds have a mean of at least {SOLVED} at the lengths of training"
        f"{': ' + '; '.join(solved) if solved else ''}. What more steps would give the others is open.\n"
    )


def draw(path: Path, rows: list[Row]) -> None:
    """Draws the mean exact match by length, a line for each kind at its best rate."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.8), layout="constrained")
    axes: Any = figure.add_subplot()
    for key, cell in cells(rows).items():
        means = [mean(cell.values(f"exact_match{at}")) for at in ("", *(f"_{n}" for n in LENGTHS))]
        line = "o:" if key[1] else "o--" if key[2] > 1 else "o-"
        color = {"none": "tab:gray", "sinusoidal": "tab:blue", "rotary": "tab:orange"}.get(key[0], "tab:green")
        axes.plot([10, *LENGTHS], means, line, color=color, label=name(key), markersize=3)
    axes.set(xlabel="symbols to reverse (10: at most 10, as in training)", ylabel="exact match", ylim=(-0.03, 1.03))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small")
    axes.set_xticks([10, *LENGTHS])
    figure.savefig(path, dpi=120)
