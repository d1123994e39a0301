"""Measures the claims that a laptop can, two at a time, and writes CLAIMS.md.

make claims
python -m experiments.claims --only=swiglu,rotary     # some, by name; or ours, 004, contradictions
python -m experiments.claims --only=                  # none: only the page again, from kept results

What is done already by the same code is not done again, so the command goes on where it was stopped. The figures are
kept in experiments/results/claims/. The exit code is 1 if something could not be measured.
"""

import fxf.machine.listen  # noqa: F401  First of all.

import json
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from absl import flags

from fxf.errors import one_line
from fxf.files import folder_at, write_atomically
from fxf.runs import cli

ROOT = Path(__file__).parents[2]
WORKDIR = flags.DEFINE_string("workdir", "runs/claims", "the folder of the runs")
ONLY = flags.DEFINE_list("only", ["all"], "names of claims, ours, or seeds as 004")
WORKERS = flags.DEFINE_integer("workers", 2, "processes at a time", 1)


def main(arguments: list[str]) -> None:
    cli.refuse_arguments(arguments)
    from experiments.claims import page
    from experiments.claims.jobs import JOBS, do, jobs_of
    from fxf.runs.code_version import code_digest, made_by

    chosen = JOBS if ONLY.value == ["all"] else list(dict.fromkeys(job for name in ONLY.value for job in jobs_of(name)))
    folder = folder_at(WORKDIR.value, "--workdir") / code_digest()[:8]
    (ROOT / page.KEPT).mkdir(parents=True, exist_ok=True)
    made = {**made_by(), "date": time.strftime("%F")}  # before the files here change
    failed, start = [], time.perf_counter()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(WORKERS.value, context, max_tasks_per_child=1) as pool:
        futures = {pool.submit(do, job, folder): job for job in chosen}
        for number, future in enumerate(as_completed(futures), 1):
            job, said = futures[future], ""
            try:
                found = {**future.result(), "made_by": made}
                write_atomically(ROOT / page.KEPT / f"{job}.json", json.dumps(found, indent=1) + "\n")
            except Exception as error:  # one measurement must not end the others
                failed.append(job)
                said = f": {one_line(f'{type(error).__name__}: {error}')[:200]}"
            print(f"{number} of {len(chosen)}  {job}  {time.perf_counter() - start:.0f} s{said}", flush=True)
    write_atomically(ROOT / page.KEPT / "since.json", json.dumps(page.since(ROOT), indent=1) + "\n")
    write_atomically(ROOT / "CLAIMS.md", page.page(ROOT))
    print("CLAIMS.md")
    if failed:
        sys.exit(f"not measured: {', '.join(failed)}")


if __name__ == "__main__":
    cli.run(main)
