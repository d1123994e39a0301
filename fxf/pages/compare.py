"""Many runs side by side: what differs in their configs, their figures with the best marked, and their curves."""

import os
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fxf.config import flatten
from fxf.errors import UserError
from fxf.machine.status import stage
from fxf.pages import report
from fxf.pages.figures import HIGHER, LOWER, figure, is_score
from fxf.pages.page import page, thinned
from fxf.pages.run_files import FINISHED, RunFiles, is_number, is_run, read
from fxf.pages.text_tables import Row, to_csv, to_markdown

SEED = "seed"
MOST_CHARACTERS = 60  # of a run's reason in the tables
LAST = ("train_loss", "tokens_per_second", "train_seconds", "parameters")  # columns after the others
NOT_SHOWN = ("steps", SEED, "examples", "compile_seconds", "evaluate_seconds", "wall_seconds", "steps_per_second")
Point = tuple[float, float]


class Group(NamedTuple):
    """Runs of one task that differ only in the seed, by their places among the runs."""

    label: str
    places: list[int]


class Comparison(NamedTuple):
    """Runs, and what is to say of them together.

    Attributes:
      names: a short name for each run.
      task: the task of most of the runs; only its runs are compared by figures.
      keys: the config keys in which the runs differ.
      values: the value of each of these keys, for each run.
      figures: the newest figures of each run.
      columns: the names of the figures to show.
      groups: the runs by what differs besides the seed.
    """

    runs: list[RunFiles]
    names: list[str]
    task: str
    keys: list[str]
    values: list[dict[str, Any]]
    figures: list[dict[str, float]]
    columns: list[str]
    groups: list[Group]

    def is_of_the_task(self, place: int) -> bool:
        return task_of(self.runs[place]) == self.task

    def is_compared(self, place: int) -> bool:
        """Returns whether the run's figures are final and of the task."""
        return self.runs[place].state == FINISHED and self.is_of_the_task(place)

    def said(self, place: int) -> str:
        other = "" if self.is_of_the_task(place) else f"another task: {task_of(self.runs[place])}"
        said = "" if self.runs[place].state == FINISHED else self.runs[place].said.partition("; reload")[0]
        text = "; ".join(filter(None, (other, said)))
        return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"


@stage("reading the runs")
def runs_of(folders: Sequence[Path]) -> list[RunFiles]:
    """Returns the runs in the folders, each a run folder or a folder of run folders.

    Raises:
      UserError: a folder is neither, or a run's config.json is damaged.
    """
    found: dict[Path, RunFiles] = {}
    for folder in folders:
        try:
            if not folder.is_dir():
                raise UserError(f"{folder}: no such folder")
            places = [folder] if is_run(folder) else sorted(path for path in folder.iterdir() if is_run(path))
        except OSError as error:
            raise UserError(f"{folder}: {error.strerror}") from None
        if not places:
            raise UserError(f"{folder}: neither a run folder nor a folder of run folders: no config.json")
        found |= {Path(os.path.abspath(place)): read(place) for place in places}
    return list(found.values())


def task_of(run: RunFiles) -> str:
    return str(run.record["config"]["task"].get("name", ""))


def comparison(runs: list[RunFiles]) -> Comparison:
    """Returns what there is to say of the runs together; there must be one."""
    configs = [dict(flatten(run.record["config"])) for run in runs]
    task = Counter(map(task_of, runs)).most_common(1)[0][0]
    of_task = [config for run, config in zip(runs, configs, strict=True) if task_of(run) == task]
    keys = [key for key in of_task[0] if any(config.get(key) != of_task[0][key] for config in of_task)]
    keys.sort(key=lambda key: key == SEED)
    values = [{key: config.get(key) for key in keys if key in config} for config in configs]
    figures = [report.latest(run) for run in runs]
    return Comparison(
        runs=runs,
        names=_names([Path(os.path.abspath(run.folder)) for run in runs]),
        task=task,
        keys=keys,
        values=values,
        figures=figures,
        columns=_columns([found for run, found in zip(runs, figures, strict=True) if task_of(run) == task]),
        groups=_groups(runs, task, values),
    )


def _names(folders: list[Path]) -> list[str]:
    """Returns the paths below the folder that holds all the runs."""
    shared = Path(os.path.commonpath([folder.parent for folder in folders]))
    return [folder.relative_to(shared).as_posix() for folder in folders]


def _columns(figures: list[dict[str, float]]) -> list[str]:
    names = dict.fromkeys(name for found in figures for name in found)
    shown = [name for name in names if figure(name).better and name not in (*NOT_SHOWN, *LAST)]
    return [*shown, *(name for name in LAST if name in names)]


def _groups(runs: list[RunFiles], task: str, values: list[dict[str, Any]]) -> list[Group]:
    places: dict[str, list[int]] = {}
    for place, (run, of_run) in enumerate(zip(runs, values, strict=True)):
        if task_of(run) == task:
            label = ", ".join(f"{key.rpartition('.')[2]}={value}" for key, value in of_run.items() if key != SEED)
            places.setdefault(label or "all", []).append(place)
    return [Group(label, of_label) for label, of_label in places.items()]


def best(values: dict[Any, float], name: str) -> list[Any]:
    """Returns the keys of the best values of the figure `name`; none if it is no score, or all are equal."""
    if not is_score(name) or len(set(values.values())) < 2:
        return []
    chosen = {LOWER: min, HIGHER: max}[figure(name).better](values.values())
    return [key for key, value in values.items() if value == chosen]


def best_runs(found: Comparison, name: str, among: Iterable[int]) -> list[int]:
    """Returns the places of the finished runs among these with the best value of a figure."""
    return best({i: found.figures[i][name] for i in among if found.is_compared(i) and name in found.figures[i]}, name)


def means(found: Comparison, group: Group) -> dict[str, tuple[float, float, int]]:
    """Returns mean, sample standard deviation and number of the finished runs of a group, for each figure."""
    compared = [found.figures[place] for place in group.places if found.is_compared(place)]
    spread = {}
    for name in found.columns:
        values = [figures[name] for figures in compared if name in figures]
        if values:
            deviation = statistics.stdev(values) if len(values) > 1 else 0.0
            spread[name] = (statistics.fmean(values), deviation, len(values))
    return spread


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
    rows, bold = (
        [],
        {
            (i, f"{name}{_arrow(name)}")
            for name in found.columns
            for i in best_runs(found, name, range(len(found.runs)))
        },
    )
    for i, run in enumerate(found.runs):
        said = found.said(i)
        figures = {
            f"{name}{_arrow(name)}": found.figures[i][name] for name in found.columns if name in found.figures[i]
        }
        status = f"{run.state}: {said}" if said else run.state
        rows.append({"run": found.names[i], **found.values[i], "status": status, **figures})
    columns = ["run", *found.keys, "status", *(f"{name}{_arrow(name)}" for name in found.columns)]
    text = to_markdown(rows, columns, bold)
    several = [(group, means(found, group)) for group in found.groups if len(group.places) > 1]
    if len(several) == 0:
        return text
    of_means = [
        {"runs that differ only in seed": group.label, "seeds": len(group.places)}
        | {f"{name}{_arrow(name)}": _with_deviation(mean, deviation) for name, (mean, deviation, _) in spread.items()}
        for group, spread in several
    ]
    names = dict.fromkeys(name for row in of_means for name in row)
    return f"{text}\nMean ± standard deviation over seeds:\n\n{to_markdown(of_means, names)}"


def _arrow(name: str) -> str:
    return {LOWER: " ↓", HIGHER: " ↑"}.get(figure(name).better, "")


def as_html(found: Comparison) -> str:
    """Returns the page of the comparison."""
    states = Counter(run.state for run in found.runs)
    others = sum(not found.is_of_the_task(i) for i in range(len(found.runs)))
    summary = f"{len(found.runs)} runs: {', '.join(f'{n} {state}' for state, n in states.items())}"
    number = {place: i for i, group in enumerate(found.groups) for place in group.places}
    winners = {name: best_runs(found, name, range(len(found.runs))) for name in found.columns}
    spreads = [means(found, group) for group in found.groups]
    best_groups = {
        name: best({i: spread[name][0] for i, spread in enumerate(spreads) if name in spread}, name)
        for name in found.columns
    }
    title = f"{found.task}: {len(found.runs)} runs compared"
    data = {
        "title": title,
        "summary": summary + (f"; {others} of another task" if others else ""),
        "keys": found.keys,
        "figures": [{"name": name, **figure(name)._asdict()} for name in found.columns],
        "runs": [
            {"name": found.names[i], "task": task_of(run), "state": run.state, "said": found.said(i)}
            | {"keys": found.values[i], "figures": found.figures[i], "group": number.get(i)}
            | {"best": [name for name, places in winners.items() if i in places]}
            for i, run in enumerate(found.runs)
        ],
        "groups": [
            {"number": i, "label": group.label, "n": len(group.places)}
            | {"means": {name: {"mean": mean, "spread": dev} for name, (mean, dev, _) in spreads[i].items()}}
            | {"best": [name for name, places in best_groups.items() if i in places]}
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
    order = sorted(names, key=lambda name: (not is_score(name), name not in report.FIRST_CHARTS))
    found_charts = []
    for name in order:
        lines: dict[int, dict[str, Any]] = {}
        for i, group in enumerate(found.groups):
            if curves := [of_runs[place][name] for place in group.places if name in of_runs[place]]:
                lines[i] = _mean_line(curves)
        of = figure(name)
        chart = {"title": of.label, "unit": of.unit, "better": of.better, "lines": lines}
        found_charts.append({**chart, "open": is_score(name)})
    return found_charts


def _curves(run: RunFiles) -> dict[str, list[Point]]:
    curves: dict[str, list[Point]] = {}
    for record in run.metrics:
        for name, value in record.items():
            if name != "step" and not name.startswith("examples") and is_number(value):
                curves.setdefault(name, []).append((record["step"], value))
    return curves


def _mean_line(curves: list[list[Point]]) -> dict[str, Any]:
    """Returns the mean of curves at the steps that all of them have, and their lowest and highest there."""
    if len(curves) == 1:
        return {"points": thinned(curves[0])}
    by_step = [dict(curve) for curve in curves]
    shared = sorted(set.intersection(*(set(curve) for curve in by_step)))
    if not shared:
        return {"points": thinned(max(curves, key=len))}
    at = {step: [curve[step] for curve in by_step] for step in shared}
    points = thinned([(step, statistics.fmean(values)) for step, values in at.items()])
    return {"points": points, "band": [[step, min(at[step]), max(at[step])] for step, _ in points]}


def _with_deviation(mean: float, deviation: float) -> str:
    return f"{mean:.4g} ± {deviation:.2g}" if deviation else f"{mean:g} ± 0"
