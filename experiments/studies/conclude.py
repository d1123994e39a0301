"""Writes tables, picture and conclusion of a study's page from its table.csv.

python -m experiments.studies.conclude width
python -m experiments.studies.conclude width --runs=runs/studies/width

The second first keeps the sweep's table.csv, and runs.jsonl with the origin, result and metrics of each run. A point
that has not begun in that folder keeps what is there of it.
"""

import argparse
import csv
import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
STUDIES = sorted(path.parent.name for path in FOLDER.glob("*/result.py"))
HEADING = "\n## Result\n\n"  # what follows in a page is written by this program

Row = dict[str, Any]


def rows_of(study: str, name: str = "table") -> list[Row]:
    """Returns the rows of a study's table, numbers as numbers; runs without a result have no figures."""
    with (FOLDER / study / f"{name}.csv").open() as file:
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


def effort(rows: Sequence[Row], rest: str = "") -> str:
    """Returns how many runs of a table have a result, and their hours; `rest` is said of the others."""
    seconds = [row["wall_seconds"] for row in rows if "wall_seconds" in row]
    return (
        f"{len(seconds)} of {len(rows)} runs have a result{rest}. They took {sum(seconds) / 3600:.1f} hours, one after "
        "another, on two cores that other programs used too."
    )


def module_of(study: str) -> Any:
    """Returns the module with `text(rows)`, the Markdown of the result, and `draw(path, rows)`."""
    return importlib.import_module(f"experiments.studies.{study}.result")


def keep(study: str, sweep: Path) -> None:
    """Keeps the table of a sweep, and writes a line for each run: what it came from, its result and its records.

    Rows and lines of points that have not begun in this sweep stay as they were.
    """
    place = FOLDER / study
    before = _lines(place / "table.csv"), {json.loads(line)["point"]: line for line in _text(place / "runs.jsonl")}
    header, *rows = csv.reader(_text(sweep / "table.csv"))
    rows = [row if _begun(sweep, row[0]) else before[0].get(row[0], row) for row in rows]
    with (place / "table.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])
    lines = []
    for row in rows_of(study):
        if not _begun(sweep, row["point"]):
            lines += before[1].get(row["point"], "").splitlines(keepends=True)
            continue
        folder = sweep / row["point"]
        origin = json.loads((folder / "config.json").read_text())
        del origin["config"]  # which follows from the config file and the overrides
        origin.pop("registered_by", None)  # a path; the digest of its file is among the digests
        origin["overrides"] = {name: value for name, value in origin["overrides"].items() if name in row}  # no paths
        result = json.loads((folder / "result.json").read_text()) if (folder / "result.json").exists() else {}
        records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        lines.append(json.dumps({"point": row["point"], **origin, "result": result, "metrics": records}) + "\n")
    (place / "runs.jsonl").write_text("".join(lines))


def _begun(sweep: Path, point: str) -> bool:
    return (sweep / point / "config.json").exists()


def _lines(table: Path) -> dict[str, list[str]]:
    """Returns the rows of a kept table by their points."""
    return {row[0]: row for row in csv.reader(_text(table))}


def _text(path: Path) -> list[str]:
    return path.read_text().splitlines(keepends=True) if path.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--runs", type=Path, help="folder of the sweep")
    given = parser.parse_args()
    folder, module = FOLDER / given.study, module_of(given.study)
    if given.runs:
        keep(given.study, given.runs)
    rows, page = rows_of(given.study), folder / "README.md"
    before, _, _ = page.read_text().partition(HEADING)
    page.write_text(before + HEADING + module.text(rows))
    module.draw(folder / "plot.png", rows)


if __name__ == "__main__":
    main()
