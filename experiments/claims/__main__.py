"""Measures the claims that a laptop can, two at a time, and fills the tables of CLAIMS.md.

make claims
python -m experiments.claims --only=swiglu,rotary     # some, by name, or a seed as 004
python -m experiments.claims --only=none              # only the tables again, from kept results

The figures are kept in experiments/results/claims/. What the same code has measured is not measured again, so the
command goes on where it was stopped. The exit code is 1 if something could not be measured.
"""

import fxf.machine.listen  # noqa: F401  First of all.

import sys

from absl import flags

from experiments.claims.arms import ARMS, measure
from experiments.claims.page import JOBS, KEPT, PAGE, jobs_of, tables
from experiments.runner import Job, filled, finished
from experiments.seeds.systems import SEEDS
from fxf.files import folder_at, write_atomically
from fxf.runs import cli
from fxf.runs.code_version import code_digest

WORKDIR = flags.DEFINE_string("workdir", "runs/claims", "the folder of the runs")
ONLY = flags.DEFINE_list("only", JOBS, "names of claims, seeds as 004, or none")
WORKERS = flags.DEFINE_integer("workers", 2, "processes at a time", 1)


def main(arguments: list[str]) -> None:
    cli.refuse_arguments(arguments)
    names = dict.fromkeys(job for name in ONLY.value for job in jobs_of(name))
    folder, failed = folder_at(WORKDIR.value, "--workdir") / code_digest()[:8], []
    jobs = [
        Job(name, measure, (name, folder / name)) if name in ARMS else Job(name, SEEDS[name].look, (folder,))
        for name in names
    ]
    for done in finished(jobs, KEPT, WORKERS.value):
        print(f"{done.name}  {done.error or done.figures['seconds']}", flush=True)
        failed += [done.name] if done.error else []
    write_atomically(PAGE, filled(PAGE, tables()))
    print("CLAIMS.md")
    if failed:
        sys.exit(f"not measured: {', '.join(failed)}")


if __name__ == "__main__":
    cli.run(main)
