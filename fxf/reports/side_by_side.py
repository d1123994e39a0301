"""Runs side by side, as CSV, as Markdown and as a page."""

import statistics
from collections import Counter
from typing import Any

from fxf.reports import report
from fxf.reports.best import best_groups, lines
from fxf.reports.compare import Comparison, Group, task_of
from fxf.reports.figures import HIGHER, LOWER, figure, is_score
from fxf.reports.page import page, thinned
from fxf.reports.run_files import NO_VALUE, RunFiles, is_number
from fxf.reports.tables import Row, to_csv, to_markdown

Point = tuple[float, float]


def as_csv(found: Comparison) -> str:
    """Returns the rows of `all_figures`."""
    return to_csv(all_figures(found))


def all_figures(found: Comparison) -> list[Row]:
    """Returns a row for each run with every figure and the value of every key that differs."""
    return [
        {"run": found.names[i], "task": task_of(run), "status": run.state, "note": found.said(i)}
        | found.values[i]
        | {("result." + name if name in found.keys else name): value for name, value in found.figures[i].items()}
        for i, run in enumerate(found.runs)
    ]


def as_markdown(found: Comparison) -> str:
    """Returns the table of the runs, and that of the means over seeds if some runs differ only in the seed."""
    rows = []
    for i, run in enumerate(found.runs):
        said = found.said(i)
        figures = {_title(found, name): found.figures[i][name] for name in found.columns if name in found.figures[i]}
        status = f"{run.state}: {said}" if said else run.state
        rows.append({"run": found.names[i], **found.values[i], "status": status, **figures})
    text = to_markdown(rows, ["run", *found.keys, "status", *(_title(found, name) for name in found.columns)])
    several = [i for i, group in enumerate(found.groups) if _n_seeds(found, group) + found.n_diverged(group) > 1]
    if len(several) == 0:
        return text
    of_means = [
        {"runs that differ only in seed": found.groups[i].label, "seeds": _n_seeds(found, found.groups[i])}
        | {_title(found, name): mean for name in found.columns if (mean := _mean(found, found.groups[i], name))}
        for i in several
    ]
    bold = {
        (several.index(i), _title(found, name))
        for name in found.columns
        for i in best_groups(found, name)
        if i in several
    }
    names = dict.fromkeys(name for row in of_means for name in row)
    return f"{text}\nMean ± standard deviation over seeds:\n\n{to_markdown(of_means, names, bold)}"


def _title(found: Comparison, name: str) -> str:
    return name + {LOWER: " ↓", HIGHER: " ↑"}.get(found.better[name], "")


def _n_seeds(found: Comparison, group: Group) -> int:
    """Returns for how many seeds of a group a run has finished."""
    return sum(any(map(found.is_compared, places)) for places in group.seeds.values())


def _mean(found: Comparison, group: Group, name: str) -> str:
    """Returns the mean of a figure over seeds with its sample standard deviation, and how many diverged."""
    values, n = found.of_seeds(group, name), found.n_diverged(group, name) if _is_open(name) else 0
    texts = [f"{statistics.fmean(values):.4g}" if values else NO_VALUE if n else ""]
    texts += [f"± {statistics.stdev(values):.2g}"] if len(values) > 1 else []
    texts += [f"({n} diverged)"] if n else []
    return " ".join(texts)


def as_html(found: Comparison) -> str:
    """Returns the page of the comparison."""
    states = Counter(run.state for run in found.runs)
    others = sum(map(bool, found.apart))
    summary = f"{len(found.runs)} runs: {', '.join(f'{n} {state}' for state, n in states.items())}"
    number = {place: i for i, group in enumerate(found.groups) for place in group.places}
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
            {"name": found.names[i], "task": task_of(run), "state": run.state, "said": found.said(i)}
            | {"keys": found.values[i], "group": number.get(i)}
            | {"figures": {name: NO_VALUE if value is None else value for name, value in found.figures[i].items()}}
            for i, run in enumerate(found.runs)
        ],
        "groups": [
            {"number": i, "label": group.label, "n": _n_seeds(found, group), "diverged": found.n_diverged(group)}
            | {"means": {name: mean for name in found.columns if (mean := _mean(found, group, name))}}
            | {"best": [name for name, groups in winners.items() if i in groups]}
            for i, group in enumerate(found.groups)
        ],
        "charts": _charts(found),
    }
    return page(title, data, ["charts.js", "compare.js"])


def _charts(found: Comparison) -> list[dict[str, Any]]:
    """Returns a chart of each figure of the records, with a line for each group: its mean over seeds, and a band."""
    of_runs = [_curves(run) for run in found.runs]
    places = [place for group in found.groups for place in group.places]
    names = dict.fromkeys(name for place in places for name in of_runs[place])
    order = sorted(names, key=lambda name: (not _is_open(name), name not in report.FIRST_CHARTS))
    found_charts = []
    for name in order:
        lines: dict[int, dict[str, Any]] = {}
        for i, group in enumerate(found.groups):
            of_seeds = [
                [of_runs[place][name] for place in places if name in of_runs[place]] for places in group.seeds.values()
            ]
            if curves := [_mean_curve(of_seed) for of_seed in of_seeds if of_seed]:
                lines[i] = _mean_line(curves)
        of = figure(name)
        better = found.better.get(name, of.better)
        chart = {"title": of.label, "unit": of.unit, "better": better, "lines": lines}
        found_charts.append({**chart, "open": _is_open(name)})
    return found_charts


def _is_open(name: str) -> bool:
    return name in ("loss", "train_loss") or (is_score(name) and bool(figure(name).better))


def _curves(run: RunFiles) -> dict[str, list[Point]]:
    curves: dict[str, list[Point]] = {}
    for record in run.metrics:
        for name, value in record.items():
            if name != "step" and not name.startswith("examples") and is_number(value):
                curves.setdefault(name, []).append((record["step"], value))
    return curves


def _by_step(curves: list[list[Point]]) -> dict[float, list[float]]:
    """Returns the values of curves at the steps that all of them have, or those of the longest if they share none."""
    of_curves = [dict(curve) for curve in curves]
    if shared := sorted(set.intersection(*map(set, of_curves))):
        return {step: [curve[step] for curve in of_curves] for step in shared}
    return {step: [value] for step, value in max(curves, key=len)}


def _mean_curve(curves: list[list[Point]]) -> list[Point]:
    return [(step, statistics.fmean(values)) for step, values in _by_step(curves).items()] if curves[1:] else curves[0]


def _mean_line(curves: list[list[Point]]) -> dict[str, Any]:
    """Returns the mean of curves, and their lowest and highest."""
    if len(curves) == 1:
        return {"points": thinned(curves[0])}
    at = _by_step(curves)
    points = thinned(_mean_curve(curves))
    return {"points": points, "band": [[step, min(at[step]), max(at[step])] for step, _ in points]}
