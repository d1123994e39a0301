"""Shared by the studies: rows of kept runs, each kind at its best rate, tables, verdicts and charts.

A study's folder has its page, `table.csv` with all runs, `runs.jsonl` with the origin, result and metrics of each, and
`result.py` with `tables(rows)`, by their names in the page, `conclusion(rows)`, its sentences, `verdicts(rows)` on its
claims, and `draw(path, rows)`. So every number of a page is computed from the runs.
"""

import csv
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean as mean
from typing import Any, NamedTuple

from fxf.reports.tables import to_csv

FOLDER = Path(__file__).parent
RATE = "optimizer.learning_rate"
SOLVED = 0.99
AT_RATES = "at the rates tried"
Row = dict[str, Any]


class Verdict(NamedTuple):
    """The metric that decides a claim, and whether the claim holds; None if the runs cannot decide it.

    Attributes:
      why: why it is undecided, or to what extent it holds.
    """

    figure: float
    holds: bool | None
    why: str = ""

    @property
    def words(self) -> str:
        found = {True: "holds", False: "does not hold", None: "undecided"}[self.holds]
        return f"{found}: {self.why}" if self.why else found

    def __str__(self) -> str:
        return f"**{self.words}**"

    def if_bracketed(self, *are: bool) -> "Verdict":
        """Returns "undecided" instead of "does not hold" unless the best rates are bracketed."""
        return self if self.holds or all(are) else Verdict(self.figure, None, "not bracketed")

    def against(self, *are: bool) -> "Verdict":
        """Limits "holds" to the rates tried unless the other side's best rates are bracketed."""
        why = f"{self.why}, {AT_RATES}" if self.why else AT_RATES
        return Verdict(self.figure, True, why) if self.holds and not all(are) else self


class Cell(NamedTuple):
    """The runs of one kind at one learning rate, one per seed."""

    rate: float
    rows: list[Row]

    def values(self, figure: str, absent: float = 0.0) -> list[float]:
        """Returns a metric of each seed; `absent` for a run without a result."""
        return [row.get(figure, absent) for row in self.rows]

    def mean(self, figure: str, absent: float = 0.0) -> float:
        return mean(self.values(figure, absent))


def rows_of(study: str, name: str = "table") -> list[Row]:
    """Returns the rows of a study's table, numbers parsed; runs without a result lack the metrics."""
    with (FOLDER / study / f"{name}.csv").open() as file:
        return [{name: _value(text) for name, text in row.items() if text} for row in csv.DictReader(file)]


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return {"True": True, "False": False}.get(text, text)


def by_rate(rows: Sequence[Row], names: Sequence[str]) -> dict[tuple[Any, ...], list[Cell]]:
    """Returns the cells for each combination of values of these columns, in increasing order of rate."""
    found: dict[tuple[Any, ...], dict[float, list[Row]]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), {}).setdefault(row[RATE], []).append(row)
    return {key: [Cell(rate, of) for rate, of in sorted(rates.items())] for key, rates in found.items()}


def best(
    rows: Sequence[Row], names: Sequence[str], rank: Callable[[Cell], float | tuple[float, ...]]
) -> dict[tuple[Any, ...], Cell]:
    """Returns the highest-ranked cell for each combination; on ties, the lowest rate."""
    return {key: max(of, key=rank) for key, of in by_rate(rows, names).items()}


def bracketed(
    rows: Sequence[Row], names: Sequence[str], rank: Callable[[Cell], float | tuple[float, ...]]
) -> dict[tuple[Any, ...], bool]:
    """Returns for each combination whether both a lower and a higher rate than its best were tried."""
    chosen, tried = best(rows, names, rank), by_rate(rows, names)
    return {key: tried[key][0].rate < chosen[key].rate < tried[key][-1].rate for key in tried}


def filled_places(module: Any, rows: list[Row]) -> dict[str, str]:
    """Returns the generated parts of a study's page by name."""
    return {**module.tables(rows), "conclusion": "".join(f"- {line}\n" for line in module.conclusion(rows))}


def by_exact_match(cell: Cell) -> float:
    """Ranks a cell by mean exact match, rounded so that rounding errors do not break ties."""
    return round(cell.mean("exact_match"), 6)


def mean_losses(rows: Iterable[Row], absent: float, most: float = float("inf")) -> dict[int, dict[float, float]]:
    """Returns {width: {rate: mean test loss}}, losses capped at `most`; a run without a loss counts as `absent`."""
    found = by_rate([*rows], ("model.d_model",))
    return {
        width: {cell.rate: mean(min(x, most) for x in cell.values("test_loss", absent)) for cell in cells}
        for (width,), cells in sorted(found.items())
    }


def records(study: str) -> dict[str, list[Row]]:
    """Returns the metrics of a study's kept runs by point."""
    runs = map(json.loads, (FOLDER / study / "runs.jsonl").read_text().splitlines())
    return {run["point"]: run["metrics"] for run in runs}


def steps_to(of_run: Sequence[Row], figure: str, least: float = SOLVED) -> int | None:
    """Returns the first step whose metric is at least `least`, or None."""
    return next((record["step"] for record in of_run if record.get(figure, -1.0) >= least), None)


def reached(cell: Cell, of_runs: Mapping[str, Sequence[Row]], figure: str = "exact_match") -> str:
    """Returns the step at which each run of a cell first solves its task."""
    return ", ".join(str(steps_to(of_runs[row["point"]], figure) or "–") for row in cell.rows)


def listed(values: Iterable[float], form: str = ".3f") -> str:
    return ", ".join(f"{value:{form}}" for value in values)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a Markdown table whose columns are right-aligned."""
    first, *lines = (f"| {' | '.join(line)} |\n" for line in [header, *rows])
    return "".join([first, f"|{'---:|' * len(header)}\n", *lines])


class Line(NamedTuple):
    """A line or dots of a chart, in a style and color of matplotlib; without a label, not in the legend."""

    label: str | None
    x: Sequence[Any]
    y: Sequence[Any]
    style: str = "o-"
    color: str | None = None


def dots(label: str | None, points: Iterable[tuple[Any, Any]], style: str = "o", color: str | None = None) -> Line:
    x, y = zip(*points, strict=True)
    return Line(label, x, y, style, color)


def chart(path: Path, panels: Mapping[str, Sequence[Line]], columns: int = 3, **axes: Any) -> None:
    """Plots the lines of each panel, by title; `axes` has labels, scales and limits as matplotlib names them."""
    from matplotlib.figure import Figure

    columns = min(columns, len(panels))
    n_rows = -(-len(panels) // columns)
    figure = Figure(figsize=(max(7, 3.2 * columns), 3.8 if n_rows == 1 else 2.6 * n_rows), layout="constrained")
    shared = n_rows == 1 or "ylim" in axes
    grid: Any = figure.subplots(n_rows, columns, squeeze=False, sharey=shared)
    for panel in grid.flat[len(panels) :]:
        panel.remove()
    for panel, (title, lines) in zip(grid.flat, panels.items(), strict=False):
        for line in lines:
            size = 14 if line.style in "_|" else 4
            panel.plot(line.x, line.y, line.style, color=line.color, label=line.label, markersize=size, alpha=0.8)
        panel.set(title=title, **axes)
        ticks = sorted({x for line in lines for x in line.x}) if axes.get("xscale") == "log" else []
        if 0 < len(ticks) < 10:
            panel.set_xticks(ticks, [f"{x:.2g}" for x in ticks], rotation=45)
            panel.minorticks_off()
        panel.spines[["top", "right"]].set_visible(False)
        if shared:
            panel.label_outer()
    labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(*labels, loc="outside right upper", frameon=False, fontsize="small")
    figure.savefig(path, dpi=120)


def keep(study: str, sweep: Path) -> None:
    """Stores the table of a sweep, and a line for each run with its origin, result and metrics.

    Rows and lines of points that have not started in this sweep stay as they were. If all have, made_by.json describes
    the last one.
    """
    place = FOLDER / study
    rows_before = {row["point"]: row for row in csv.DictReader(_lines(place / "table.csv"))}
    runs_before = {json.loads(line)["point"]: line for line in _lines(place / "runs.jsonl")}
    rows = {row["point"]: row for row in csv.DictReader(_lines(sweep / "table.csv"))}
    begun = {point: (sweep / point / "config.json").exists() for point in rows}
    kept = [row if begun[point] else rows_before.get(point, row) for point, row in rows.items()]
    (place / "table.csv").write_text(to_csv(kept))
    lines = []
    for row in rows_of(study):
        if not begun[row["point"]]:
            lines.append(runs_before.get(row["point"], ""))
            continue
        folder = sweep / row["point"]
        origin = json.loads((folder / "config.json").read_text())
        del origin["config"]  # follows from the config file and the overrides
        origin.pop("guests", None)  # paths; the digests cover their files
        origin["overrides"] = {name: value for name, value in origin["overrides"].items() if name in row}  # no paths
        result = json.loads((folder / "result.json").read_text()) if (folder / "result.json").exists() else {}
        metrics = list(map(json.loads, _lines(folder / "metrics.jsonl")))
        lines.append(json.dumps({"point": row["point"], **origin, "result": result, "metrics": metrics}) + "\n")
    (place / "runs.jsonl").write_text("".join(lines))
    if all(begun.values()):
        made = {"date": time.strftime("%F", time.gmtime((folder / "config.json").stat().st_mtime))}
        made |= {name: origin[name] for name in ("git_commit", "machine", "versions")}
        (place / "made_by.json").write_text(json.dumps(made, indent=1) + "\n")


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines(keepends=True) if path.exists() else []
