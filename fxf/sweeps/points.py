"""The points of a sweep, and the table of their results.

A config file's `sweep(add)` adds the points; each is a run with some keys changed.

    from fxf.sweeps.points import grid

    def sweep(add):
        for point in grid({"model.n_layers": [1, 2], "seed": range(3)}):
            add(**point)

`add(**{"model.n_layers": 2})` adds one point. `sweep(add, argument)` gets the argument after the file's name, as does
`get_config(argument)`, so one file can hold several sweeps.
"""

import hashlib
import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fxf.base.config import flatten, with_values
from fxf.base.errors import UserError
from fxf.base.files import write_atomically
from fxf.base.status import stage
from fxf.reports import run_files
from fxf.reports.tables import Row, to_csv
from fxf.runs import run_folder
from fxf.runs.experiment import build

TABLE = "table.csv"  # a row for each point of a sweep, or each pair of a trial

MAX_NAME = 100  # characters


class Point(NamedTuple):
    """One run of a sweep.

    Attributes:
      name: name of its run folder, made from what the sweep added.
      changes: values of the changed keys, named as in `--config.KEY`, also those of a changed section.
      config: the whole config, nested.
    """

    name: str
    changes: dict[str, Any]
    config: dict[str, Any]


def grid(values: Mapping[str, Iterable[Any]]) -> list[dict[str, Any]]:
    """Returns the changes of every combination of the keys' values; the last key varies fastest."""
    return [dict(zip(values, combination, strict=True)) for combination in itertools.product(*values.values())]


def make_points(
    config: Mapping[str, Any], added: Iterable[Mapping[str, Any]], overridden: Collection[str] = ()
) -> list[Point]:
    """Returns the points of the changes that a sweep added, in order and without repeats.

    A section among them changes the keys that it names, as on a command line.

    Args:
      overridden: keys that the command line sets for every point.

    Raises:
      UserError: there is no point, or a point changes an overridden key. `check` finds wrong keys.
    """
    points = dict[str, Point]()
    for each in added:
        changes = {key: x.item() if getattr(x, "size", 0) == 1 else x for key, x in flatten(each)}
        if both := [key for key in changes if key in overridden]:
            raise UserError(f"--config.{both[0]}: the sweep sets this key itself")
        name = point_name(changes)
        points.setdefault(name, Point(name, changes, with_values(config, changes)))
    if not points:
        raise UserError("sweep: it added no point")
    return [*points.values()]


def point_name(changes: Mapping[str, Any]) -> str:
    """Returns a file name for a point: `KEY=VALUE,…` with the keys in alphabetical order.

    If the name is too long or has characters that are unsafe in file names, it is cut and ends in a digest.
    """
    text = ",".join(f"{key}={changes[key]}" for key in sorted(changes)) or "unchanged"
    safe = re.sub(r"[^\w.=,+-]", "_", text, flags=re.ASCII)
    if safe == text and len(text) <= MAX_NAME:
        return text
    return f"{safe[:MAX_NAME]}-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


@stage("checking the points")
def check(points: Sequence[Point], workdir: Path) -> list[Point]:
    """Builds every point, which also prepares its data, and returns those that have not finished training.

    Raises:
      UserError: a point's config is wrong, or its folder in `workdir` holds a run of another config. The message names
        the point.
    """
    left = []
    for number, point in enumerate(points, 1):
        folder = workdir / point.name
        try:
            experiment = build(point.config, folder)
            source = run_folder.source_digest(folder, experiment.start.path)
            left += [] if run_folder.finished(experiment.made_in(folder, source)) else [point]
        except UserError as error:
            raise UserError(f"sweep: point {number} ({point.name}): {error}") from None
    return left


def write_table(points: Sequence[Point], workdir: Path) -> Path:
    """Writes table.csv in `workdir`, with a row for each point, and returns its path."""
    path = workdir / TABLE
    workdir.mkdir(parents=True, exist_ok=True)
    write_atomically(path, to_csv(read_rows(points, workdir)))
    return path


def read_rows(points: Sequence[Point], workdir: Path) -> list[Row]:
    """Returns a row for each point: its name, the value of every changed key, `status`, and the metrics of its result.

    The status is that of the run: finished, running, stopped, failed or diverged. A metric is named `result.NAME` if
    a key has its name and another value.
    """
    keys, rows = dict.fromkeys(key for point in points for key in point.changes), []
    for point in points:
        config, folder = dict(flatten(point.config)), workdir / point.name
        run = run_files.read(folder) if run_files.is_run(folder) else None
        row = {"point": point.name, **{key: config.get(key, "") for key in keys}}
        row["status"] = run.state if run else "no result"
        figures = run.result if run else {}
        named = {(f"result.{n}" if n in row and row[n] != value else n): value for n, value in figures.items()}
        rows.append({**row, **named})
    return rows
