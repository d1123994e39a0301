"""Runs every system of the five seeds at a small size, and compares each statement of a seed with fxf's result.

make seeds
python -m experiments.seeds --workdir=runs/seeds --only=004,contradictions

What the same code has done is not repeated. The folder has the runs, and `figures.md` with all rows. The exit code is 1
if a row does not hold; the last lines name these rows.
"""

import fxf.base.listen  # noqa: F401  First of all.

import sys
from argparse import Namespace

from experiments.runner import Job, finished, several
from experiments.seeds.systems import SEEDS
from fxf.base.config import one_of
from fxf.base.files import folder_at, write_atomically
from fxf.reports.tables import to_markdown
from fxf.runs.code_version import code_digest
from fxf.verbs.flags import Parser


def flags(parser: Parser) -> None:
    parser.flag("workdir", default="runs/seeds", doc="the folder for runs and results")
    parser.flag("only", several, list(SEEDS), "only these seeds, or contradictions")


def main(args: Namespace) -> None:
    names = [one_of(name, SEEDS, "--only") for name in args.only]
    folder, rows, failed = folder_at(args.workdir, "--workdir"), [], []
    runs = folder / code_digest()[:8]  # a finished run is not repeated, so other code needs other folders
    for done in finished([Job(name, SEEDS[name].look, (runs,)) for name in names], folder):
        if done.error:
            failed.append(f"seed {done.name}: {done.error}")
            continue
        print(f"seed {done.name}: {done.figures['seconds']} s", flush=True)
        rows += [{"seed": done.name, **row} for row in SEEDS[done.name].rows(done.figures["figures"])]
    failed += [f"does not hold: seed {row['seed']}, {row['what']}" for row in rows if row["verdict"] != "holds"]
    if rows:
        table = to_markdown(rows, rows[0])
        write_atomically(folder / "figures.md", table)
        print(f"{table}{folder / 'figures.md'}: {len(rows)} rows")
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    from fxf.verbs.command import run_verb

    run_verb("python -m experiments.seeds", "experiments.seeds.__main__", sys.argv[1:])
