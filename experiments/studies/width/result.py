"""Best learning rates of each width, with and without a base."""

import math
from pathlib import Path
from typing import Any

from experiments.studies.conclude import Row, mean, table

KINDS = {"with": "with `base_width`", "without": "without"}
BOUND = math.sqrt(2)


def losses(rows: list[Row], kind: str, seed: int | None = None) -> dict[int, dict[float, float]]:
    """Returns {width: {rate: mean test loss over the seeds, or that of one}}; infinite if a run has no loss.

    The narrowest width is its own base, which is the same with and without.
    """
    narrowest = min(row["model.d_model"] for row in rows)
    found: dict[int, dict[float, list[float]]] = {}
    for row in rows:
        width = row["model.d_model"]
        if seed in (None, row["seed"]) and (width == narrowest or (row["model.base_width"] > 0) == (kind == "with")):
            of_width = found.setdefault(width, {})
            of_width.setdefault(row["optimizer.learning_rate"], []).append(row.get("test_loss", math.inf))
    return {width: {rate: mean(each) for rate, each in sorted(of.items())} for width, of in sorted(found.items())}


def best_rate(by_rate: dict[float, float]) -> float:
    """Returns where the parabola through the lowest loss and its neighbours is lowest, over the rates' logarithms.

    It is NaN if the lowest loss is that of the first or last rate, or if a neighbour has no loss.
    """
    rates = list(by_rate)
    i = min(range(len(rates)), key=lambda i: by_rate[rates[i]])
    if i in (0, len(rates) - 1):
        return math.nan
    (x0, x1, x2), (y0, y1, y2) = zip(*((math.log2(r), by_rate[r]) for r in rates[i - 1 : i + 2]), strict=True)
    left, right = (y1 - y0) / (x1 - x0), (y2 - y1) / (x2 - x1)
    curvature = (right - left) / (x2 - x0)
    return 2 ** ((x0 + x1) / 2 - left / (2 * curvature)) if math.isfinite(curvature) else math.nan


def spread(best: list[float]) -> float:
    """Returns the largest divided by the smallest; NaN if one is unknown."""
    return math.nan if any(map(math.isnan, best)) else max(best) / min(best)


def text(rows: list[Row]) -> str:
    kinds = {kind: losses(rows, kind) for kind in KINDS}
    seeds = sorted({row["seed"] for row in rows})
    best = {kind: {width: best_rate(of) for width, of in found.items()} for kind, found in kinds.items()}
    lines = []
    for width in kinds["with"]:
        cells = [str(width)]
        for kind, found in kinds.items():
            of_seeds = [losses(rows, kind, seed).get(width) for seed in seeds]
            each = ", ".join(f"{best_rate(of):.4f}" for of in of_seeds if of)
            cells += [f"{best[kind][width]:.4f}", each, f"{min(found[width].values()):.3f}"]
        lines.append(cells)
    header = ["width", *(f"{what} {name}" for name in KINDS.values() for what in ("best rate", "of each seed", "loss"))]
    spreads = {kind: spread(list(of.values())) for kind, of in best.items()}
    narrowest, *_, widest = best["without"]
    ratio = best["without"][narrowest] / best["without"][widest]
    return (
        f"{table(header, lines)}\n{_all_losses(kinds)}\n![test loss by learning rate](plot.png)\n\n"
        "## Conclusion\n\n"
        f"- With `base_width` the best rates of widths {narrowest} to {widest} lie within a factor of "
        f"{spreads['with']:.2f}. The bound is {BOUND:.2f}: the first claim {_verdict(spreads['with'] <= BOUND)}.\n"
        f"- Without it they lie within a factor of {spreads['without']:.2f}, and the best rate of width {widest} is "
        f"{ratio:.2f} times lower than that of width {narrowest}. The bound is 2: the second claim "
        f"{_verdict(ratio >= 2)}.\n"
        f"- At the best rate of width {narrowest}, {_transferred(kinds, narrowest, widest)}\n"
        f"- At its own best rate, width {widest} has the lower loss {_lower(kinds, widest)} `base_width`.\n"
    )


def _verdict(holds: bool) -> str:
    return "**holds**" if holds else "**does not hold**"


def _transferred(kinds: dict[str, dict[int, dict[float, float]]], narrowest: int, widest: int) -> str:
    """Returns the sentence on the widest model at the tried rate that is best for the narrowest."""
    of_narrowest = kinds["with"][narrowest]
    rate = min(of_narrowest, key=lambda rate: of_narrowest[rate])
    parts = []
    for kind, name in KINDS.items():
        of_widest = kinds[kind][widest]
        parts.append(f"{of_widest[rate]:.3f} {name.replace('`', '')} (its lowest is {min(of_widest.values()):.3f})")
    return f"{rate:.4f} among those tried, width {widest} ends with a loss of {' and '.join(parts)}."


def _lower(kinds: dict[str, dict[int, dict[float, float]]], width: int) -> str:
    return min(KINDS, key=lambda kind: min(kinds[kind][width].values()))


def _all_losses(kinds: dict[str, dict[int, dict[float, float]]]) -> str:
    """Returns the table of all mean losses."""
    columns = [(kind, width) for kind, found in kinds.items() for width in found]
    rates = sorted({rate for found in kinds.values() for of in found.values() for rate in of})
    header = ["rate", *(f"{width}, {kind}" for kind, width in columns)]
    lines = []
    for rate in rates:
        found = [kinds[kind][width].get(rate) for kind, width in columns]
        cells = ["" if x is None else f"{x:.3f}" if math.isfinite(x) else "none" for x in found]
        lines.append([f"{rate:.5f}", *cells])
    return table(header, lines)


def draw(path: Path, rows: list[Row]) -> None:
    """Draws the losses of each width by rate, with a circle at the best rate: with a base, and without."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.8), layout="constrained")
    axes: Any = None
    for place, (kind, name) in enumerate(KINDS.items()):
        axes = figure.add_subplot(1, 2, place + 1, sharex=axes, sharey=axes, title=name.replace("`", ""))
        found = losses(rows, kind)
        for i, (width, by_rate) in enumerate(found.items()):
            color = colormaps["viridis"](i / len(found))
            axes.plot(list(by_rate), list(by_rate.values()), "o-", color=color, markersize=3, label=f"width {width}")
            axes.axvline(best_rate(by_rate), color=color, linestyle=":", linewidth=1)
        lowest = min(min(of.values()) for of in found.values())
        axes.set_xscale("log", base=2)
        axes.set(xlabel="learning rate (dotted: the best)", ylim=(lowest - 0.05, lowest + 0.7))
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("test loss (nats, mean of the seeds)")
    figure.axes[0].legend(frameon=False, fontsize="small")
    figure.savefig(path, dpi=150)
