"""The table of a sweep's results, as CSV and Markdown, and its plot."""

from collections.abc import Sequence
from pathlib import Path

from fxf.config import flatten, one_of
from fxf.errors import UserError
from fxf.files import why_not_written, write_atomically
from fxf.reports.plots import choose_x, plot_lines
from fxf.reports.run_files import DIVERGED, FINISHED, has_diverged, is_number
from fxf.reports.tables import Row, to_csv, to_markdown
from fxf.runs import run_folder
from fxf.sweeps.points import Point, changed_keys

NO_RESULT, DAMAGED = "no result", "damaged result"
ALWAYS_SHOWN = ("test_loss", "train_loss", "train_seconds")


def report(
    points: Sequence[Point], workdir: Path, metrics: Sequence[str], x: str | None = None, y: str | None = None
) -> list[Path]:
    """Writes table.csv, table.md and, if a point has a result, plot.png in `workdir`; returns their paths.

    Args:
      metrics: the task's metrics, named as in `Task.metrics`, for the columns of table.md and the plot.
      x: key for the plot's horizontal axis; chosen if None.
      y: figure for its vertical axis; chosen if None.

    Raises:
      UserError: no result has a number `y`, or a file cannot be written.
    """
    try:
        return _written(points, workdir, metrics, x, y)
    except OSError as error:
        raise UserError(f"{workdir}: {why_not_written(error) or error}") from None


def _written(
    points: Sequence[Point], workdir: Path, metrics: Sequence[str], x: str | None, y: str | None
) -> list[Path]:
    keys, rows = changed_keys(points), read_rows(points, workdir)
    shown = [*keys, "status", *(name.removeprefix("-") for name in metrics), *ALWAYS_SHOWN]
    paths = [workdir / name for name in ("table.csv", "table.md", "plot.png")]
    workdir.mkdir(parents=True, exist_ok=True)
    write_atomically(paths[0], to_csv(rows))
    write_atomically(paths[1], to_markdown(rows, shown))
    finished, figures = _figures(rows, keys)
    if not finished or not keys:
        return paths[:2]
    y = one_of(y, figures, "--y") if y else next(name for name in shown if name in figures)
    diverged = [row for row in rows if row["status"] == DIVERGED]
    plot_lines(paths[2], [*finished, *diverged], keys, x or choose_x(rows, keys), y)
    return paths


def require_figure(name: str, points: Sequence[Point], workdir: Path) -> None:
    """Raises a UserError if results are there already and none has a number of this name."""
    finished, figures = _figures(read_rows(points, workdir), changed_keys(points))
    if finished:
        one_of(name, figures, "--y")


def _figures(rows: Sequence[Row], keys: Sequence[str]) -> tuple[list[Row], dict[str, None]]:
    """Returns the rows of finished points, and the names of their figures in order."""
    finished = [row for row in rows if row["status"] == FINISHED]
    names = [name for row in finished for name in row if name not in keys and is_number(row[name])]
    return finished, dict.fromkeys(names)


def read_rows(points: Sequence[Point], workdir: Path) -> list[Row]:
    """Returns a row for each point: its name, the value of every changed key, `status`, and its result's figures.

    A point that ended because its loss was not finite is `diverged`.

    A figure becomes `result.NAME` if another column has its name but another value.
    """
    keys, rows = changed_keys(points), []
    for point in points:
        config, folder = dict(flatten(point.config)), workdir / point.name
        result, exists = run_folder.read_result(folder), (folder / run_folder.RESULT).exists()
        without = DAMAGED if exists else DIVERGED if has_diverged(folder) else NO_RESULT
        status = FINISHED if result is not None else without
        row = {"point": point.name, **{key: config[key] for key in keys}, "status": status}
        figures = {(f"result.{n}" if n in row and row[n] != value else n): value for n, value in (result or {}).items()}
        rows.append({**row, **figures})
    return rows
