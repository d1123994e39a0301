"""Kept results: the tables that a benchmark keeps, and what claims read of them."""

import csv
import functools
import json
import re
import time
from pathlib import Path
from typing import Any

from fxf.errors import UserError
from fxf.files import read_json
from fxf.pages.text_tables import to_csv
from fxf.runs import code_version

RESULTS = Path(__file__).parent / "results"
MULTI30K = "configs/multi30k_de"  # the folder of its seeds in experiments/results
Row = dict[str, Any]


def keep(name: str, rows: list[list[str]]) -> None:
    """Writes table.csv, whose first row is the header, and what made it, into the folder of this name."""
    folder = RESULTS / name
    folder.mkdir(parents=True, exist_ok=True)
    note_what_made(folder)
    (folder / "table.csv").write_text(to_csv([dict(zip(rows[0], row, strict=True)) for row in rows[1:]]))


def note_what_made(folder: Path) -> None:
    """Writes made_by.json: code, versions, machine and date; before the results, which would count as changes."""
    made = {**code_version.made_by(), "date": time.strftime("%F")}
    (folder / "made_by.json").write_text(json.dumps(made, indent=1) + "\n")


TABLES = ("again", "bench", "rest", "earlier")  # of `make bench` on one machine; a row is that of the first that has it


class Kept:
    """The results in a checkout, each read once."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @functools.cached_property
    def older(self) -> dict[str, Row]:
        """Returns the figures whose runs were not kept, by name."""
        return self._json("older.json")

    def bench(self, name: str = "bench") -> Row:
        """Returns versions, commit, machine and `rows` of a table of `make bench`."""
        return self._json(f"bench/{name}.json")

    def bench_row(self, what: str, *names: str) -> dict[str, float]:
        """Returns the median of each way of the first row of that name in some tables, by default in `TABLES`."""
        rows = (row for name in names or TABLES for row in self.bench(name)["rows"])
        row = next(row for row in rows if row["row"] == what and "error" not in row)
        return {way: each["median"] for way, each in row["figures"].items()}

    def _json(self, name: str) -> Row:
        return read_json(self.root / "experiments/results" / name, "a kept result")

    def result(self, name: str) -> Row:
        """Returns the figures of a run in `experiments/results`, or older ones of a config whose run is not kept."""
        runs, own = self.older["configs"]["runs"], name.removeprefix("configs/")
        if own in runs and not (self.root / "experiments/results" / name).exists():
            return runs[own]
        return self._json(f"{name}/result.json")

    def seeds(self, name: str) -> list[Row]:
        """Returns the figures of the runs of a config in `experiments/results`, one for each seed that is kept."""
        folders = sorted((self.root / "experiments/results" / name).glob("seed_*"))
        return [self.result(f"{name}/{folder.name}") for folder in folders]

    def made_by(self, folder: str) -> Row:
        """Returns the commit, date, versions and machine of the results in a folder; what nobody noted is unknown."""
        if folder.endswith("/bench"):
            bench = self.bench()
            return {"git_commit": bench["commit"], "date": bench["started"][:10], **bench}
        path, plan = (self.root / folder / name for name in ("made_by.json", "plan.json"))
        if plan.exists():  # a trial says it itself
            said = read_json(plan, "a trial's plan")
            return {**said, "date": said["budgets"][0]["time"][:10]}
        if not path.exists() and Path(folder).name in self.older["configs"]["runs"]:
            older = self.older["configs"]
            return {**older, "git_commit": older["commit"], "versions": "unknown", "older": True}
        return read_json(path, "a note of what made results")

    def table(self, study: str) -> list[Row]:
        """Returns the runs of a study; what reads as a number is one."""
        return self._csv(f"studies/{study}")

    def _csv(self, folder: str) -> list[Row]:
        path = self.root / "experiments" / folder / "table.csv"
        try:
            rows = csv.DictReader(path.read_text().splitlines())
        except UnicodeDecodeError as error:
            raise UserError(f"{path}: no table: {error}") from None
        return [{name: _value(cell) for name, cell in row.items()} for row in rows]


def _value(cell: str) -> Any:
    try:
        return int(cell) if re.fullmatch(r"-?\d+", cell) else float(cell)
    except ValueError:
        return cell
