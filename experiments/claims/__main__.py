"""Measures the claims that a laptop can, two at a time, and writes CLAIMS.md.

make claims
python -m experiments.claims --only=swiglu,rotary     # some, by name; or ours, 004, contradictions
python -m experiments.claims --only=none              # only the page again, from kept results

A measurement begins only if it is likely to end within --minutes; the command names those that it leaves out, whose
rows stay as they are. What is done already by the same code is not done again, so the command goes on where it was
stopped. The figures are kept in experiments/results/claims/. The exit code is 1 if something could not be measured.
"""

import fxf.machine.listen  # noqa: F401  First of all.

import json
import sys
import time
from pathlib import Path

from absl import flags

from fxf.files import folder_at, write_atomically
from fxf.runs import cli

ROOT = Path(__file__).parents[2]
WORKDIR = flags.DEFINE_string("workdir", "runs/claims", "the folder of the runs")
ONLY = flags.DEFINE_list("only", ["all"], "names of claims, ours, seeds as 004, or none")
WORKERS = flags.DEFINE_integer("workers", 2, "processes at a time", 1)
MINUTES = flags.DEFINE_float("minutes", 30, "wall time within which measurements end, as far as known", 0)


def main(arguments: list[str]) -> None:
    cli.refuse_arguments(arguments)
    from experiments.claims import page
    from experiments.claims.jobs import JOBS, do_all, jobs_of
    from fxf.runs.code_version import code_digest, made_by

    names = [name for name in ONLY.value if name != "none"]
    chosen = JOBS if names == ["all"] else list(dict.fromkeys(job for name in names for job in jobs_of(name)))
    folder = folder_at(WORKDIR.value, "--workdir") / code_digest()[:8]
    kept = ROOT / page.KEPT
    kept.mkdir(parents=True, exist_ok=True)
    made = {**made_by(), "date": time.strftime("%F")}  # before the files here change
    failed, left = do_all(chosen, folder, kept, made, minutes=MINUTES.value, workers=WORKERS.value)
    write_atomically(kept / "since.json", json.dumps(page.since(ROOT), indent=1) + "\n")
    write_atomically(ROOT / "CLAIMS.md", page.page(ROOT))
    print("CLAIMS.md")
    if left:
        print(f"no time left for {', '.join(left)}; the same command goes on with them")
    if failed:
        sys.exit(f"not measured: {', '.join(failed)}")


if __name__ == "__main__":
    cli.run(main)
