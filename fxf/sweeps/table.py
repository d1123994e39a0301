"""The table of a sweep's results, as CSV and Markdown, and its plot."""

from collections.abc import Sequence
from pathlib import Path

from fxf.config import flatten
from fxf.errors import UserError
from fxf.files import why_not_written, write_atomically
from fxf.reports import run_files
from fxf.reports.plots import choose_x, plot_lines
from fxf.reports.run_files import DIVERGED, FINISHED, is_number
from fxf.reports.tables import Row, to_csv, to_markdown
from fxf.sweeps.points import Point, changed_keys

NO_RESULT = "no result"  # the status of a point that has not begun
ALWAYS_SHOWN = ("test_loss", "train_loss", "train_seconds")


def report(points: Sequence[Point], workdir: Path, metrics: Sequence[str]) -> list[Path]:
    """Writes table.csv, table.md and, if a point has a result, plot.png in `workdir`; returns their paths.

    Args:
      metrics: the task's metrics, named as in `Task.metrics`, for the columns of table.md and the plot.

    Raises:
      UserError: a file cannot be written.
    """
    keys, rows = changed_keys(points), read_rows(points, workdir)
    shown = [*keys, "status", *(name.removeprefix("-") for name in metrics), *ALWAYS_SHOWN]
    paths = [workdir / name for name in ("table.csv", "table.md", "plot.png")]
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        write_atomically(paths[0], to_csv(rows))
        write_atomically(paths[1], to_markdown(rows, shown))
        finished = [row for row in rows if row["status"] == FINISHED]
        figures = {name for row in finished for name in row if name not in keys and is_number(row[name])}
        if not figures or not keys:
            return paths[:2]
        drawn = [row for row in rows if row["status"] in (FINISHED, DIVERGED)]
        plot_lines(paths[2], drawn, keys, choose_x(rows, keys), next(name for name in shown if name in figures))
    except OSError as error:
        raise UserError(f"{workdir}: {why_not_written(error) or error}") from None
    return paths


def read_rows(points: Sequence[Point], workdir: Path) -> list[Row]:
    """Returns a row for each point: its name, the value of every changed key, `status`, and its result's figures.

    The status is that of the run: finished, running, stopped, failed or diverged. A figure becomes `result.NAME` if
    another column has its name but another value.
    """
    keys, rows = changed_keys(points), []
    for point in points:
        config, folder = dict(flatten(point.config)), workdir / point.name
        run = run_files.read(folder) if run_files.is_run(folder) else None
        row = {"point": point.name, **{key: config[key] for key in keys}, "status": run.state if run else NO_RESULT}
        figures = run.result if run else {}
        named = {(f"result.{n}" if n in row and row[n] != value else n): value for n, value in figures.items()}
        rows.append({**row, **named})
    return rows
