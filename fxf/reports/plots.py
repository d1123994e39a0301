"""Plots of the figures of runs."""

import os
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from fxf.reports.figures import figure as figure_of
from fxf.reports.run_files import DIVERGED, is_no_value, is_number

SEED = "seed"
MAX_TICKS = 12


def choose_x(rows: Sequence[dict[str, Any]], keys: Sequence[str]) -> str:
    """Returns the key for the horizontal axis: the numeric one with the most values; the seed only if alone."""
    return max(keys, key=lambda key: (key != SEED, _is_numeric(rows, key), len(_values(rows, key))))


class Line(NamedTuple):
    """The figure of one combination of keys: its values at each place, and the places where a run has no value."""

    label: str
    values: dict[float, list[float]]
    diverged: list[float]


def plot_lines(path: Path, rows: Sequence[dict[str, Any]], keys: Sequence[str], x: str, y: str) -> None:
    """Draws the figure `y` against the key `x`, with a line for each combination of the other keys that vary.

    With several seeds a line is their mean, with bars from the lowest to the highest. If `x` holds names, no line joins
    them. Rows without `y` are left out. A cross at the top stands where a run diverged, or its `y` is NaN, infinite or
    null.

    Args:
      keys: the changed keys, which each row has.
      x: one of the keys; `seed` is averaged over unless it is `x`.
    """
    figure = _figure_class()(figsize=(7, 4.2), layout="constrained")
    from matplotlib import colormaps

    axes: Any = figure.add_subplot()
    rows = [row for row in rows if is_number(row.get(y)) or _has_diverged(row, y)]
    numeric, values = _is_numeric(rows, x), _values(rows, x)
    at = dict(zip(values, values if numeric else range(len(values)), strict=True))
    lines = _lines(rows, [key for key in keys if key not in (x, SEED)], at, x, y)
    colors = colormaps["viridis"].resampled(max(len(lines), 2) + 1)  # its last color is too light for a line
    for i, line in enumerate(lines):
        several = line.values.values()
        means = [fmean(each) for each in several]
        spans = [[mean - min(each), max(each) - mean] for mean, each in zip(means, several, strict=True)]
        look = {"fmt": "o-" if numeric else "o", "color": colors(i), "markersize": 4, "label": line.label}
        axes.errorbar(list(line.values), means, np.transpose(spans) if spans else None, **look)
        if line.diverged:
            top = {"transform": axes.get_xaxis_transform(), "clip_on": False}
            axes.plot(line.diverged, [0.98] * len(line.diverged), "x", color=colors(i), markersize=7, **top)
    if _spans([row[y] for row in rows if is_number(row.get(y))], 100):
        axes.set_yscale("log")
    if numeric and _spans(values, 10):
        axes.set_xscale("log")
    if len(at) <= MAX_TICKS or not numeric:
        axes.set_xticks(list(at.values()), [f"{v:g}" if isinstance(v, float) else str(v) for v in at])
        axes.set_xticks([], minor=True)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    of = figure_of(y)
    notes = ", ".join(filter(None, (of.unit, of.better and f"{of.better} is better")))
    axes.set_xlabel(x.rpartition(".")[2].replace("_", " "))
    axes.set_ylabel(f"{of.label} ({notes})" if notes else of.label)
    if len(lines) > 1:
        figure.legend(loc="outside right upper", frameon=False, fontsize="small")
    n_seeds = len(_values(rows, SEED)) if SEED in keys and x != SEED else 1
    said = [f"mean of {n_seeds} seeds, and lowest to highest"] if n_seeds > 1 else []
    said += ["× a run diverged"] if any(line.diverged for line in lines) else []
    figure.suptitle("; ".join(said), fontsize="small", x=0.01, ha="left")
    figure.savefig(path, dpi=150)


def _figure_class() -> Any:
    """Returns matplotlib's figure, which needs no backend; one that the environment names may not be installed."""
    os.environ["MPLBACKEND"] = "agg"
    from matplotlib.figure import Figure

    return Figure


def _lines(rows: Sequence[dict[str, Any]], keys: Sequence[str], at: dict[Any, float], x: str, y: str) -> list[Line]:
    """Returns a line for each combination of the keys that vary; `at` has the place of each value of `x`."""
    others = [key for key in keys if len(_values(rows, key)) > 1]
    found = {tuple(row[key] for key in others): Line("", {}, []) for row in rows}
    for row in sorted(rows, key=lambda row: at[row[x]]):
        group = tuple(row[key] for key in others)
        label = ", ".join(f"{key.rpartition('.')[2]}={row[key]}" for key in others)
        line = found[group] = found[group]._replace(label=label)
        if is_number(row.get(y)):
            line.values.setdefault(at[row[x]], []).append(row[y])
        else:
            line.diverged.append(at[row[x]])
    return list(found.values())


def _has_diverged(row: dict[str, Any], y: str) -> bool:
    return row.get("status") == DIVERGED or (y in row and is_no_value(row[y]))


def _spans(values: Sequence[float], ratio: float) -> bool:
    """Returns whether positive values differ so much that a logarithmic axis shows them better."""
    return min(values) > 0 and max(values) >= ratio * min(values)


def _values(rows: Sequence[dict[str, Any]], key: str) -> list[Any]:
    """Returns the distinct values of a key: numbers in ascending order, others in order of appearance."""
    values = list(dict.fromkeys(row[key] for row in rows))
    return sorted(values) if _is_numeric(rows, key) else values


def _is_numeric(rows: Sequence[dict[str, Any]], key: str) -> bool:
    return all(is_number(row[key]) for row in rows)
