"""Keeps the table of a benchmark in experiments/results, beside what made it."""

import json
import time
from pathlib import Path

from fxf.pages.text_tables import to_csv
from fxf.runs.code_version import made_by

RESULTS = Path(__file__).parents[1] / "results"


def keep(name: str, rows: list[list[str]]) -> None:
    """Writes table.csv, whose first row is the header, and what made it, into the folder of this name."""
    folder = RESULTS / name
    folder.mkdir(parents=True, exist_ok=True)
    note_what_made(folder)
    (folder / "table.csv").write_text(to_csv([dict(zip(rows[0], row, strict=True)) for row in rows[1:]]))


def note_what_made(folder: Path) -> None:
    """Writes made_by.json: code, versions, machine and date; before the results, which would count as changes."""
    made = {**made_by(), "date": time.strftime("%F")}
    (folder / "made_by.json").write_text(json.dumps(made, indent=1) + "\n")
