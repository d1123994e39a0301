"""Measures the claims that a laptop can, two at a time, and fills the tables of CLAIMS.md.

make claims
python -m experiments.claims --only=swiglu,rotary     # some, by name, or a seed as 004
python -m experiments.claims --only=none              # only refill the tables, from kept results

Results are kept in experiments/results/claims/. What the same code has measured is not measured again, so an
interrupted command continues. The exit code is 1 if something could not be measured.
"""

import fxf.base.listen  # noqa: F401  First of all.

import sys
from argparse import Namespace

from experiments.claims.arms import ARMS, measure
from experiments.claims.page import JOBS, KEPT, PAGE, jobs_of, tables
from experiments.runner import Job, filled, finished, several
from experiments.seeds.systems import SEEDS
from fxf.base.files import folder_at, write_atomically
from fxf.runs.code_version import code_digest
from fxf.verbs.flags import Parser, whole


def flags(parser: Parser) -> None:
    parser.flag("workdir", default="runs/claims", doc="the folder of the runs")
    parser.flag("only", several, JOBS, "names of claims, seeds as 004, or none")
    parser.flag("workers", whole(1), 2, "number of parallel processes")


def main(args: Namespace) -> None:
    names = dict.fromkeys(job for name in args.only for job in jobs_of(name))
    folder, failed = folder_at(args.workdir, "--workdir") / code_digest()[:8], []
    jobs = [
        Job(name, measure, (name, folder / name)) if name in ARMS else Job(name, SEEDS[name].look, (folder,))
        for name in names
    ]
    for done in finished(jobs, KEPT, args.workers):
        print(f"{done.name}  {done.error or done.figures['seconds']}", flush=True)
        failed += [done.name] if done.error else []
    write_atomically(PAGE, filled(PAGE, tables()))
    print("CLAIMS.md")
    if failed:
        sys.exit(f"not measured: {', '.join(failed)}")


if __name__ == "__main__":
    from fxf.verbs.command import run_verb

    run_verb("python -m experiments.claims", "experiments.claims.__main__", sys.argv[1:])
