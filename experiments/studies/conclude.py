"""Writes tables, picture and conclusion of a study's page from its table.csv.

python -m experiments.studies.conclude width
"""

import csv
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
STUDIES = sorted(path.parent.name for path in FOLDER.glob("*/result.py"))
HEADING = "\n## Result\n\n"  # what follows in a page is written by this program

Row = dict[str, Any]


def rows_of(study: str) -> list[Row]:
    """Returns the rows of a study's table, numbers as numbers; runs without a result have no figures."""
    with (FOLDER / study / "table.csv").open() as file:
        return [{name: _value(text) for name, text in row.items() if text} for row in csv.DictReader(file)]


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return {"True": True, "False": False}.get(text, text)


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a Markdown table whose columns are right-aligned."""
    lines = [header, ["---:"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def module_of(study: str) -> Any:
    """Returns the module with `text(rows)`, the Markdown of the result, and `draw(path, rows)`."""
    return importlib.import_module(f"experiments.studies.{study}.result")


def main(studies: list[str]) -> None:
    for study in studies:
        rows, page = rows_of(study), FOLDER / study / "README.md"
        before, _, _ = page.read_text().partition(HEADING)
        page.write_text(before + HEADING + module_of(study).text(rows))
        module_of(study).draw(FOLDER / study / "plot.png", rows)


if __name__ == "__main__":
    main(sys.argv[1:] or list(STUDIES))
