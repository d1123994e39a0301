"""The table of a sweep's results, as CSV."""

from collections.abc import Sequence
from pathlib import Path

from fxf.base.config import flatten
from fxf.base.files import write_atomically
from fxf.reports import run_files
from fxf.reports.tables import Row, to_csv
from fxf.sweeps.points import Point

NO_RESULT = "no result"  # the status of a point that has not begun


def write_table(points: Sequence[Point], workdir: Path) -> Path:
    """Writes table.csv in `workdir`, with a row for each point, and returns its path."""
    path = workdir / "table.csv"
    workdir.mkdir(parents=True, exist_ok=True)
    write_atomically(path, to_csv(read_rows(points, workdir)))
    return path


def read_rows(points: Sequence[Point], workdir: Path) -> list[Row]:
    """Returns a row for each point: its name, the value of every changed key, `status`, and its result's figures.

    The status is that of the run: finished, running, stopped, failed or diverged. A figure becomes `result.NAME` if
    another column has its name but another value.
    """
    keys, rows = dict.fromkeys(key for point in points for key in point.changes), []
    for point in points:
        config, folder = dict(flatten(point.config)), workdir / point.name
        run = run_files.read(folder) if run_files.is_run(folder) else None
        row = {"point": point.name, **{key: config[key] for key in keys}, "status": run.state if run else NO_RESULT}
        figures = run.result if run else {}
        named = {(f"result.{n}" if n in row and row[n] != value else n): value for n, value in figures.items()}
        rows.append({**row, **named})
    return rows
