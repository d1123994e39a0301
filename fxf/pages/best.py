"""The best of several runs, and the command that goes on from it."""

from pathlib import Path

from fxf.errors import UserError
from fxf.pages import compare, report
from fxf.pages.run_files import RunFiles


def best_run(found: compare.Comparison) -> tuple[RunFiles, str] | None:
    """Returns the best finished run and the first score that tells it from others; None if no score does.

    The first score decides, and each further one among those that are still equal.
    """
    first, places = "", list(range(len(found.runs)))
    for name in found.columns:
        if winners := compare.best_runs(found, name, places):
            first, places = first or name, winners
    return (found.runs[places[0]], first) if first else None


def lines(found: compare.Comparison) -> list[str]:
    """Returns a line that names the best run, and one with the command; none if no score tells a run from others."""
    if (chosen := best_run(found)) is None:
        return []
    run, name = chosen
    return [f"best {name}: {run.folder}", f"to go on from it: {report.command(run.record, str(run.folder))}"]


def comparison_in(folder: Path) -> compare.Comparison | None:
    """Returns the comparison of the runs in a folder; None if it has none that can be read."""
    try:
        return compare.comparison(compare.runs_of([folder]))
    except UserError:
        return None
