"""Writes the tables and the plot of a study's page from its table.csv, and prints the verdicts on its claims.

python -m experiments.studies width
python -m experiments.studies width --runs=runs/studies/width

The second command first keeps the sweep's table.csv, and runs.jsonl with the origin, result and metrics of each run.
Points that have not started in that folder keep their old rows.
"""

import argparse
import importlib
from pathlib import Path
from typing import Any

from experiments.runner import filled
from experiments.studies import study

STUDIES = sorted(path.parent.name for path in study.FOLDER.glob("*/result.py"))


def module_of(name: str) -> Any:
    """Returns the module with `tables(rows)`, `conclusion(rows)`, `verdicts(rows)` and `draw(path, rows)`."""
    return importlib.import_module(f"experiments.studies.{name}.result")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--runs", type=Path, help="folder of the sweep")
    given = parser.parse_args()
    folder, module = study.FOLDER / given.study, module_of(given.study)
    if given.runs:
        study.keep(given.study, given.runs)
    rows, page = study.rows_of(given.study), folder / "README.md"
    page.write_text(filled(page, study.filled_places(module, rows)))
    module.draw(folder / "plot.png", rows)
    for number, verdict in enumerate(module.verdicts(rows), 1):
        print(f"claim {number}: {verdict.figure:.4g}: {verdict.words}")


if __name__ == "__main__":
    main()
