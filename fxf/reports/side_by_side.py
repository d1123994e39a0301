"""A comparison of runs as CSV, as Markdown and as a page."""

import os
import statistics
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fxf.reports.best import best_groups, lines
from fxf.reports.compare import Comparison, Group
from fxf.reports.figures import HIGHER, LOWER, figure, is_score
from fxf.reports.page import page, thinned
from fxf.reports.report import FIRST_CHARTS, REPORT, axes
from fxf.reports.run_files import NO_VALUE
from fxf.reports.tables import Row, rounded, to_markdown

MOST_OF_LABEL = 48  # characters in the legend of a curve
SAME = "runs that differ only in seed"


def all_figures(runs: Comparison) -> list[Row]:
    """Returns a row for each run, with every metric and the value of every key that differs."""
    return [
        {"run": entry.name, "task": entry.run.task, "status": entry.run.state, "note": entry.said}
        | entry.values
        | {("result." + name if name in runs.keys else name): value for name, value in entry.figures.items()}
        for entry in runs.entries
    ]


def as_markdown(runs: Comparison) -> str:
    """Returns a table of each model's runs, and a table of means over seeds if some runs differ only in the seed."""
    titles = {name: name + {LOWER: " ↓", HIGHER: " ↑"}.get(runs.better[name], "") for name in runs.columns}
    kinds = defaultdict[str, list[Row]](list)
    for entry in runs.entries:
        status = f"{entry.run.state}: {entry.said}" if entry.said else entry.run.state
        figures = {title: entry.figures[name] for name, title in titles.items() if name in entry.figures}
        kinds[entry.run.model].append({"run": entry.name, **entry.values, "status": status, **figures})
    tables = {kind: to_markdown(rows, ["run", *runs.keys, "status", *titles.values()]) for kind, rows in kinds.items()}
    text = "\n".join(f"{kind}:\n\n{table}" if len(tables) > 1 else table for kind, table in tables.items())
    several = [group for group in runs.groups if group.n_seeds() + group.n_diverged() > 1]
    if not several:
        return text
    means = []
    for group in several:
        cells = {titles[name]: mean for name, mean in _means(runs, group).items()}
        means.append({SAME: group.label, "seeds": group.n_seeds(), **cells})
    best = {name: best_groups(runs, name) for name in titles}
    bold = {(i, titles[name]) for i, group in enumerate(several) for name in titles if group in best[name]}
    table = to_markdown(means, [SAME, "seeds", *titles.values()], bold)
    return f"{text}\nMean ± standard deviation over seeds:\n\n{table}"


def _means(runs: Comparison, group: Group) -> dict[str, str]:
    """Returns the mean of each metric over seeds with its sample standard deviation, and how many diverged."""
    means = {}
    for name in runs.columns:
        values, n = group.seed_values(name), group.n_diverged(name) if _is_open(runs, name) else 0
        mean = statistics.fmean(values or [0])
        shown = f"{mean:.0f}" if mean.is_integer() else rounded(mean)  # counts, as of parameters, get all digits
        texts = [shown] if values else [NO_VALUE] if n else []
        texts += [f"± {rounded(statistics.stdev(values), 2)}"] if len(values) > 1 else []
        texts += [f"({n} diverged)"] if n else []
        if texts:
            means[name] = " ".join(texts)
    return means


def as_html(runs: Comparison, beside: Path = Path()) -> str:
    """Returns the page of the comparison. Its links are relative to the folder `beside`."""
    states = Counter(entry.run.state for entry in runs.entries)
    others = sum(bool(entry.difference) for entry in runs.entries)
    summary = f"{len(runs.entries)} runs: {', '.join(f'{n} {state}' for state, n in states.items())}"
    number = {entry.name: i for i, group in enumerate(runs.groups) for entry in group.entries}
    rows = [
        {
            **{"name": entry.name, "task": entry.run.task, "state": entry.run.state, "said": entry.said},
            **{"model": entry.run.model, "keys": entry.values, "group": number.get(entry.name)},
            "link": quote(os.path.relpath(at, beside)) if (at := entry.run.folder / REPORT).exists() else None,
            "figures": {name: NO_VALUE if value is None else value for name, value in entry.figures.items()},
        }
        for entry in runs.entries
    ]
    best = {name: best_groups(runs, name) for name in runs.columns}
    groups = []
    for i, group in enumerate(runs.groups):
        first, more = group.entries[0], len(group.entries) - 1
        name = f"{first.name} and {more} more" if more else first.name
        short = group.label if len(group.label) <= MOST_OF_LABEL else min(name, group.label, key=len)
        groups.append({"number": i, "label": group.label, "short": short, "axes": axes(first.run)})
        groups[-1] |= {"n": group.n_seeds(), "diverged": group.n_diverged(), "means": _means(runs, group)}
        groups[-1] |= {"best": [name for name in best if group in best[name]]}
    title = f"{runs.task}: {len(rows)} runs compared"
    data = {
        "title": title,
        "summary": summary + (f"; {others} of another task or with other scored data" if others else ""),
        "said": lines(runs),
        "keys": runs.keys,
        "figures": [{"name": name, "better": runs.better[name]} for name in runs.columns],
        "runs": rows,
        "groups": groups,
        "charts": _charts(runs),
    }
    return page(title, data, ["compare.js"])


def _charts(runs: Comparison) -> list[dict[str, Any]]:
    """Returns a chart of each logged metric, with a line for each group: the mean over its runs, in a band."""
    lines = defaultdict[str, dict[int, Any]](dict)
    for i, group in enumerate(runs.groups):
        curves = [(name, dict(points)) for entry in group.entries for name, points in entry.run.curves().items()]
        for name in dict(curves):
            lines[name][i] = _mean_line([points for other, points in curves if other == name])
    charts = []
    for name in sorted(lines, key=lambda name: (not _is_open(runs, name), name not in FIRST_CHARTS)):
        known = figure(name)
        better = runs.better.get(name, known.better)
        chart = {"title": known.label, "unit": known.unit, "better": better, "open": _is_open(runs, name)}
        charts.append({**chart, "lines": lines[name]})
    return charts


def _is_open(runs: Comparison, name: str) -> bool:
    return name in ("loss", "train_loss") or (is_score(name) and bool(runs.better.get(name, figure(name).better)))


def _mean_line(curves: list[dict[int, float]]) -> dict[str, Any]:
    """Returns the mean of curves (values by step), and a band from the lowest to the highest.

    A step counts if every curve that reaches it has a value there. If the curves have no step in common, the longest
    one stands alone.
    """
    if not set.intersection(*map(set, curves)) or len(curves) == 1:
        return {"points": thinned(list(max(curves, key=len).items()))}
    last = [max(curve) for curve in curves]
    every = {step: [curve[step] for curve in curves if step in curve] for step in sorted(set().union(*curves))}
    at = {step: values for step, values in every.items() if len(values) == sum(end >= step for end in last)}
    points = thinned([(step, statistics.fmean(values)) for step, values in at.items()])
    return {"points": points, "band": [[step, min(at[int(step)]), max(at[int(step)])] for step, _ in points]}
