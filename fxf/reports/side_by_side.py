"""Runs side by side, as CSV, as Markdown and as a page."""

import os
import statistics
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fxf.reports.best import best_groups, lines
from fxf.reports.compare import Comparison, Group
from fxf.reports.figures import HIGHER, LOWER, figure, is_score
from fxf.reports.page import page, thinned
from fxf.reports.report import FIRST_CHARTS, REPORT, axes
from fxf.reports.run_files import NO_VALUE
from fxf.reports.tables import Row, to_markdown

MOST_OF_LABEL = 48  # characters beside a curve
Curve = dict[int, float]  # values by step


def all_figures(found: Comparison) -> list[Row]:
    """Returns a row for each run with every figure and the value of every key that differs."""
    return [
        {"run": entry.name, "task": entry.run.task, "status": entry.run.state, "note": entry.said}
        | entry.values
        | {("result." + name if name in found.keys else name): value for name, value in entry.figures.items()}
        for entry in found.entries
    ]


def as_markdown(found: Comparison) -> str:
    """Returns a table of each model's runs, and that of the means over seeds if some runs differ only in the seed."""
    titles = {name: name + {LOWER: " ↓", HIGHER: " ↑"}.get(found.better[name], "") for name in found.columns}
    kinds: dict[str, list[Row]] = {}
    for entry in found.entries:
        status = f"{entry.run.state}: {entry.said}" if entry.said else entry.run.state
        figures = {title: entry.figures[name] for name, title in titles.items() if name in entry.figures}
        kinds.setdefault(entry.run.model, []).append({"run": entry.name, **entry.values, "status": status, **figures})
    tables = {kind: to_markdown(rows, ["run", *found.keys, "status", *titles.values()]) for kind, rows in kinds.items()}
    text = "\n".join(f"{kind}:\n\n{table}" if len(tables) > 1 else table for kind, table in tables.items())
    several = [group for group in found.groups if group.n_seeds() + group.n_diverged() > 1]
    if not several:
        return text
    means = [
        {"runs that differ only in seed": group.label, "seeds": group.n_seeds()}
        | {titles[name]: mean for name, mean in _means(found, group).items()}
        for group in several
    ]
    best = {name: best_groups(found, name) for name in titles}
    bold = {(i, titles[name]) for i, group in enumerate(several) for name in titles if group in best[name]}
    columns = ["runs that differ only in seed", "seeds", *titles.values()]
    return f"{text}\nMean ± standard deviation over seeds:\n\n{to_markdown(means, columns, bold)}"


def _means(found: Comparison, group: Group) -> dict[str, str]:
    """Returns the mean of each figure over seeds with its sample standard deviation, and how many diverged."""
    means = {}
    for name in found.columns:
        values, n = group.of_seeds(name), group.n_diverged(name) if _is_open(name) else 0
        texts = [f"{statistics.fmean(values):.4g}"] if values else [NO_VALUE] if n else []
        texts += [f"± {statistics.stdev(values):.2g}"] if len(values) > 1 else []
        texts += [f"({n} diverged)"] if n else []
        if texts:
            means[name] = " ".join(texts)
    return means


def as_html(found: Comparison, beside: Path = Path()) -> str:
    """Returns the page of the comparison, for the folder `beside`."""
    states = Counter(run.state for run in found.runs)
    others = sum(bool(entry.apart) for entry in found.entries)
    summary = f"{len(found.runs)} runs: {', '.join(f'{n} {state}' for state, n in states.items())}"
    number = {entry.name: i for i, group in enumerate(found.groups) for entry in group.entries}
    winners = {name: best_groups(found, name) for name in found.columns}
    title = f"{found.task}: {len(found.runs)} runs compared"
    data = {
        "title": title,
        "summary": summary + (f"; {others} of another task or with other scored data" if others else ""),
        "said": lines(found),
        "keys": found.keys,
        "figures": [
            {"name": name, **figure(name)._replace(better=found.better[name])._asdict()} for name in found.columns
        ],
        "runs": [
            {"name": entry.name, "task": entry.run.task, "state": entry.run.state, "said": entry.said}
            | {"model": entry.run.model, "link": _link(entry.run.folder / REPORT, beside)}
            | {"keys": entry.values, "group": number.get(entry.name)}
            | {"figures": {name: NO_VALUE if value is None else value for name, value in entry.figures.items()}}
            for entry in found.entries
        ],
        "groups": [
            {
                "number": i,
                "label": group.label,
                "short": _short(group),
                "n": group.n_seeds(),
                "diverged": group.n_diverged(),
                "axes": axes(group.entries[0].run),
                "means": _means(found, group),
                "best": [name for name in winners if group in winners[name]],
            }
            for i, group in enumerate(found.groups)
        ],
        "charts": _charts(found),
    }
    return page(title, data, ["compare.js"])


def _short(group: Group) -> str:
    """Returns the label of a group, or the names of its runs where that is too long for a chart."""
    if len(group.label) <= MOST_OF_LABEL:
        return group.label
    first, *others = [entry.name for entry in group.entries]
    return f"{first} and {len(others)} more" if others else first


def _link(page: Path, beside: Path) -> str | None:
    """Returns the link from a folder to a page, if there is one."""
    return quote(Path(os.path.relpath(page, beside)).as_posix()) if page.exists() else None


def _charts(found: Comparison) -> list[dict[str, Any]]:
    """Returns a chart of each figure of the records, with a line for each group: its mean over seeds, and a band."""
    lines: dict[str, dict[int, Any]] = {}
    for i, group in enumerate(found.groups):
        of_runs = [entry.run.curves() for entry in group.entries]
        for name in dict.fromkeys(name for curves in of_runs for name in curves):
            lines.setdefault(name, {})[i] = _mean_line([dict(curves[name]) for curves in of_runs if name in curves])
    charts = []
    for name in sorted(lines, key=lambda name: (not _is_open(name), name not in FIRST_CHARTS)):
        of = figure(name)
        chart = {"title": of.label, "unit": of.unit, "better": found.better.get(name, of.better), "lines": lines[name]}
        charts.append({**chart, "open": _is_open(name)})
    return charts


def _is_open(name: str) -> bool:
    return name in ("loss", "train_loss") or (is_score(name) and bool(figure(name).better))


def _mean_line(curves: list[Curve]) -> dict[str, Any]:
    """Returns the mean of curves, and their lowest and highest, at the steps that all have, else the longest curve."""
    shared = sorted(set.intersection(*map(set, curves)))
    if not shared or len(curves) == 1:
        return {"points": thinned(list(max(curves, key=len).items()))}
    at = {step: [curve[step] for curve in curves] for step in shared}
    points = thinned([(step, statistics.fmean(values)) for step, values in at.items()])
    return {"points": points, "band": [[step, min(at[int(step)]), max(at[int(step)])] for step, _ in points]}
