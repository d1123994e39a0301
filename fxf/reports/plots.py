"""Plots of the figures of runs, and heat maps of a model's arrays."""

import itertools
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# Figures are files; another backend that the environment names may not be installed.
os.environ["MPLBACKEND"] = "agg"

SEED = "seed"
MAX_TICKS = 12
LOG_RATIO = 100  # a figure whose largest value is this many times the smallest has a logarithmic axis


def choose_x(rows: Sequence[dict[str, Any]], keys: Sequence[str]) -> str:
    """Returns the key for the horizontal axis: the numeric one with the most values; the seed only if alone."""
    ranks = {key: (key != SEED, _is_numeric(rows, key), len(_values(rows, key))) for key in keys}
    return max(keys, key=lambda key: ranks[key])


def plot_lines(path: Path, rows: Sequence[dict[str, Any]], keys: Sequence[str], x: str, y: str) -> None:
    """Draws the figure `y` against the key `x`, with a line for each combination of the other keys that vary.

    With several seeds a line is their mean, in a band from the lowest to the highest. If `x` holds names, marks and
    bars replace lines and bands. Rows without `y` are left out.

    Args:
      keys: the changed keys, which each row has.
      x: one of the keys; `seed` is averaged over unless it is `x`.
    """
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    rows = [row for row in rows if is_number(row.get(y))]
    others = [key for key in keys if key not in (x, SEED) and len(_values(rows, key)) > 1]
    groups = list(dict.fromkeys(tuple(row[key] for key in others) for row in rows))
    numeric, values = _is_numeric(rows, x), _values(rows, x)
    positions = values if numeric else list(range(len(values)))
    at = dict(zip(values, positions, strict=True))

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    colors = colormaps["viridis"].resampled(max(len(groups), 2) + 1)  # its last color is too light for a line
    for i, group in enumerate(groups):
        seen: dict[float, list[float]] = {}
        for row in rows:
            if tuple(row[key] for key in others) == group:
                seen.setdefault(at[row[x]], []).append(row[y])
        places = sorted(seen)
        means = [sum(seen[place]) / len(seen[place]) for place in places]
        label = ", ".join(f"{key}={value}" for key, value in zip(_short(others), group, strict=True))
        lowest, highest = [min(seen[place]) for place in places], [max(seen[place]) for place in places]
        # Nothing lies between two names, so no line joins them.
        axes.plot(places, means, "o-" if numeric else "o", color=colors(i), markersize=4, linewidth=1.6, label=label)
        if numeric:
            axes.fill_between(places, lowest, highest, color=colors(i), alpha=0.15, linewidth=0)
        else:
            axes.vlines(places, lowest, highest, color=colors(i), alpha=0.4)
    if numeric and _is_geometric(positions):
        axes.set_xscale("log")
    heights = [row[y] for row in rows]
    if min(heights) > 0 and max(heights) >= LOG_RATIO * min(heights):
        axes.set_yscale("log")
    if len(at) <= MAX_TICKS or not numeric:
        axes.set_xticks(positions, [f"{value:g}" if isinstance(value, float) else str(value) for value in at])
        axes.set_xticks([], minor=True)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if others:
        figure.legend(loc="outside right upper", frameon=False, fontsize="small")
    n_seeds = len(_values(rows, SEED)) if SEED in keys and x != SEED else 1
    if n_seeds > 1:
        axes.set_title(f"mean of {n_seeds} seeds, and lowest to highest", fontsize="small", loc="left")
    figure.savefig(path, dpi=150)


def plot_heat_maps(
    path: Path,
    matrices: Any,
    titles: Sequence[str],
    row_labels: Sequence[str],
    column_labels: Sequence[str],
    title: str,
) -> None:
    """Draws matrices [N, rows, columns] side by side on one color scale; with negative values it is red to blue.

    Args:
      row_labels, column_labels: labels for every matrix; without them the ticks are numbers.
    """
    from matplotlib.figure import Figure

    n, n_rows, n_columns = matrices.shape
    across = min(n, 4)
    down = -(-n // across)
    labelled = bool(row_labels or column_labels)
    cell = 0.28 if labelled else 3.2 / max(n_rows, n_columns)
    size = (across * max(2.4, cell * n_columns + 0.9), down * max(1.8, cell * n_rows + 0.9) + 0.4)
    figure = Figure(figsize=(min(size[0], 24), min(size[1], 24)), layout="constrained")
    low, high = float(matrices.min()), float(matrices.max())
    signed = low < 0
    limit = max(abs(low), abs(high)) or 1.0
    image = None
    for i in range(n):
        axes = figure.add_subplot(down, across, i + 1)
        image = axes.imshow(
            matrices[i],
            cmap="RdBu_r" if signed else "viridis",
            vmin=-limit if signed else 0,
            vmax=limit,
            aspect="equal" if labelled else "auto",
            interpolation="nearest",
        )
        axes.set_title(titles[i], fontsize="small")
        axes.tick_params(length=0, labelsize="x-small")
        if column_labels:
            axes.set_xticks(range(n_columns), column_labels, rotation=90)
        if row_labels:
            axes.set_yticks(range(n_rows), row_labels)
    if image is not None:
        figure.colorbar(image, ax=figure.axes, shrink=0.8)
    figure.suptitle(title, fontsize="medium")
    figure.savefig(path, dpi=150)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _values(rows: Sequence[dict[str, Any]], key: str) -> list[Any]:
    """Returns the distinct values of a key: numbers in ascending order, others in order of appearance."""
    values = list(dict.fromkeys(row[key] for row in rows))
    return sorted(values) if _is_numeric(rows, key) else values


def _is_numeric(rows: Sequence[dict[str, Any]], key: str) -> bool:
    return all(is_number(row[key]) for row in rows)


def _is_geometric(values: Sequence[float]) -> bool:
    """Returns whether ascending values are spaced more evenly on a logarithmic scale."""
    if len(values) < 3 or values[0] <= 0:
        return False
    gaps = [b - a for a, b in itertools.pairwise(values)]
    ratios = [math.log(b / a) for a, b in itertools.pairwise(values)]
    return max(ratios) / min(ratios) < max(gaps) / min(gaps)


def _short(keys: Sequence[str]) -> list[str]:
    """Returns the last parts of the keys' names if all differ, else the whole names."""
    parts = [key.rpartition(".")[2] for key in keys]
    return parts if len(set(parts)) == len(parts) else list(keys)
