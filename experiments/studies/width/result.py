"""Best learning rate of each width, with and without `base_width`."""

import math
from pathlib import Path

from experiments.studies.study import Line, Row, Verdict, chart, mean_losses, table

KINDS = {"with": "with `base_width`", "without": "without"}
BOUND = math.sqrt(2)
Losses = dict[int, dict[float, float]]


def losses(rows: list[Row], kind: str, seed: int | None = None) -> Losses:
    """Returns {width: {rate: mean test loss over seeds, or one seed's}}; infinite if a run has no loss.

    The narrowest width is the base, so it is the same with and without.
    """
    narrowest = min(row["model.d_model"] for row in rows)
    chosen = (r for r in rows if r["model.d_model"] == narrowest or (r["model.base_width"] > 0) == (kind == "with"))
    return mean_losses((row for row in chosen if seed in (None, row["seed"])), math.inf)


def best_rate(by_rate: dict[float, float]) -> float:
    """Returns the minimum of the parabola through the lowest loss and its neighbours, over log rates.

    It is NaN if the lowest loss is at the first or last rate, or if a neighbour has no loss.
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
    """Returns the largest value divided by the smallest; NaN if one is unknown."""
    return math.nan if any(map(math.isnan, best)) else max(best) / min(best)


def verdicts(rows: list[Row]) -> list[Verdict]:
    based, without = ([*map(best_rate, losses(rows, kind).values())] for kind in KINDS)
    found = [(spread(based), spread(based) <= BOUND), (ratio := without[0] / without[-1], ratio >= 2)]
    return [Verdict(figure, holds).if_bracketed(not math.isnan(figure)) for figure, holds in found]


def tables(rows: list[Row]) -> dict[str, str]:
    kinds = {kind: losses(rows, kind) for kind in KINDS}
    of_seeds = {kind: [losses(rows, kind, seed) for seed in sorted({row["seed"] for row in rows})] for kind in KINDS}
    lines = []
    for width in kinds["with"]:
        line = [str(width)]
        for kind, found in kinds.items():
            each = ", ".join(f"{best_rate(of[width]):.4f}" for of in of_seeds[kind] if width in of)
            line += [f"{best_rate(found[width]):.4f}", each, f"{min(found[width].values()):.3f}"]
        lines.append(line)
    header = ["width", *(f"{what} {name}" for name in KINDS.values() for what in ("best rate", "of each seed", "loss"))]
    return {"result": table(header, lines)}


def conclusion(rows: list[Row]) -> list[str]:
    (spread_of, ratio), found = verdicts(rows), {kind: losses(rows, kind) for kind in KINDS}
    narrow, wide = min(found["with"]), max(found["with"])
    rate = min(found["with"][narrow], key=found["with"][narrow].__getitem__)
    at = {kind: found[kind][wide][rate] for kind in KINDS}
    lowest = {kind: min(found[kind][wide].values()) for kind in KINDS}
    return [
        f"With `base_width` the best rates lie within a factor of {spread_of.figure:.2f}: the first claim {spread_of}.",
        f"Without it that of width {wide} is {ratio.figure:.2f} times lower than that of {narrow}: the second {ratio}.",
        f"At the rate tried that is best at width {narrow}, {rate:.4f}, width {wide} has a loss of {at['with']:.3f} "
        f"with and {at['without']:.3f} without. Its lowest at any rate are {lowest['with']:.3f} and "
        f"{lowest['without']:.3f}.",
    ]


def draw(path: Path, rows: list[Row]) -> None:
    """Plots each width's loss by rate, with and without `base_width`."""
    found = {name.replace("`", ""): losses(rows, kind) for kind, name in KINDS.items()}
    panels = {
        name: [Line(f"width {width}", [*of], [*of.values()]) for width, of in by_width.items()]
        for name, by_width in found.items()
    }
    chart(path, panels, xscale="log", xlabel="learning rate", ylabel="test loss (nats, mean of the seeds)")
