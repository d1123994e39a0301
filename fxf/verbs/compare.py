"""Compares runs: their configs, metrics and curves, and whether they differ by more than their seeds.

fxf compare runs/a runs/b runs/c
fxf compare runs/sweep
fxf compare --format=csv runs/sweep > metrics.csv

An argument is a run folder, or a folder of run folders, such as a sweep's. The table is printed as Markdown, or as CSV
with every metric. Lines below it say what is not ranked and why. They name the best run, or the first one if its lead
may be due to the seeds, and the command that starts a new run from it. compare.html, which also has the curves, is
written to the folder of the sweep, or here; --output names another file. The runs need not have ended.
"""

import sys
from argparse import Namespace
from pathlib import Path

from fxf.base.config import one_of
from fxf.base.errors import UserError
from fxf.base.files import write_atomically
from fxf.verbs.flags import Parser, place

NEEDS_JAX = False  # importing JAX takes longer than the comparison
ARGUMENTS = "run folders, or the folder of a sweep"


def flags(parser: Parser) -> None:
    parser.flag("format", default="markdown", doc="format of the table: markdown or csv")
    parser.flag("output", place, doc="file for the page; by default compare.html")


def main(args: Namespace) -> None:
    from fxf.reports import best, compare, side_by_side
    from fxf.reports.run_files import is_run
    from fxf.reports.tables import to_csv

    is_csv = one_of(args.format, ("markdown", "csv"), "--format") == "csv"
    folders = [Path(folder) for folder in args.arguments]
    if not folders:
        raise UserError("no run: give run folders or the folder of a sweep; for example fxf compare runs/sweep")
    comparison = compare.comparison(compare.runs_of(folders))
    beside = folders[0] if len(folders) == 1 and not is_run(folders[0]) else Path()
    output = Path(args.output) if args.output else beside / "compare.html"
    if output.suffix != ".html":
        raise UserError(f"--output: expected a name that ends in .html, got {output}")
    write_atomically(output, side_by_side.as_html(comparison, output.parent))
    print(to_csv(side_by_side.all_figures(comparison)) if is_csv else side_by_side.as_markdown(comparison), end="")
    for line in [*best.lines(comparison), str(output)]:
        print(line, file=sys.stderr)
