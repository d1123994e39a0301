"""How much the loss depends on the learning rate, with and without a norm of queries and keys."""

import math
from pathlib import Path
from typing import Any

from experiments.studies.conclude import Row, mean, table

NAMES = {False: "without", True: "with `qk_norm`"}


def losses(rows: list[Row], qk_norm: bool) -> dict[int, dict[float, float]]:
    """Returns {width: {rate: test loss, at most that of a guess, mean over the seeds}}. A failed run counts as a guess.

    A guess has the loss ln V for V tokens.
    """
    guess = math.log(max(row["vocabulary"] for row in rows if "vocabulary" in row))
    found: dict[int, dict[float, list[float]]] = {}
    for row in rows:
        if row["model.qk_norm"] == qk_norm:
            loss = row.get("test_loss", guess)
            of_width = found.setdefault(row["model.d_model"], {})
            of_width.setdefault(row["optimizer.learning_rate"], []).append(min(loss, guess))
    return {width: {rate: mean(each) for rate, each in sorted(of.items())} for width, of in sorted(found.items())}


def sensitivity(by_rate: dict[float, float]) -> float:
    """Returns the mean over the rates of the loss above the lowest one (Wortsman et al. 2023, "LR sensitivity")."""
    return mean([loss - min(by_rate.values()) for loss in by_rate.values()])


def text(rows: list[Row]) -> str:
    kinds = {qk_norm: losses(rows, qk_norm) for qk_norm in NAMES}
    widths = list(kinds[False])
    found = {width: {qk_norm: sensitivity(kinds[qk_norm][width]) for qk_norm in NAMES} for width in widths}
    header = ["width", *(f"{what} {name}" for name in NAMES.values() for what in ("sensitivity", "lowest loss"))]
    lines = []
    for width in widths:
        cells = [[f"{found[width][norm]:.3f}", f"{min(kinds[norm][width].values()):.3f}"] for norm in NAMES]
        lines.append([str(width), *cells[0], *cells[1]])
    lower = [width for width in widths if found[width][True] < found[width][False]]
    verdict = "**holds**" if lower == widths else "**does not hold**"
    ratios = ", ".join(f"{found[width][True] / found[width][False]:.2f}" for width in widths)
    return (
        f"{table(header, lines)}\n{_all_losses(kinds)}\n![test loss by learning rate](plot.png)\n\n"
        "## Conclusion\n\n"
        f"- The sensitivity is lower with `qk_norm` at {len(lower)} of {len(widths)} widths: the claim {verdict}.\n"
        f"- It is {ratios} times that without, at widths {', '.join(map(str, widths))}.\n"
    )


def _all_losses(kinds: dict[bool, dict[int, dict[float, float]]]) -> str:
    """Returns the table of all mean losses."""
    columns = [(width, norm) for width in kinds[False] for norm in NAMES]
    header = ["rate", *(f"{width}, {NAMES[norm].split()[0]}" for width, norm in columns)]
    rates = list(next(iter(kinds[False].values())))
    lines = [[f"{rate:g}", *(f"{kinds[norm][width][rate]:.3f}" for width, norm in columns)] for rate in rates]
    return table(header, lines)


def draw(path: Path, rows: list[Row]) -> None:
    """Draws the losses by rate, a picture for each width."""
    from matplotlib.figure import Figure

    kinds = {norm: losses(rows, norm) for norm in NAMES}
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    axes: Any = None
    for place, width in enumerate(kinds[False]):
        axes = figure.add_subplot(1, len(kinds[False]), place + 1, sharey=axes, title=f"width {width}")
        for norm, color in ((False, "tab:red"), (True, "tab:blue")):
            by_rate = kinds[norm][width]
            axes.plot(list(by_rate), list(by_rate.values()), "o-", color=color, label=NAMES[norm].replace("`", ""))
        axes.set(xscale="log", xlabel="learning rate")
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("test loss (nats, at most a guess's)")
    figure.axes[0].legend(frameon=False)
    figure.savefig(path, dpi=150)
