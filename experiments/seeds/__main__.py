"""Runs every system of the five seeds in small, and writes one page a seed with what each says and what fxf gives.

make seeds
python -m experiments.seeds --workdir=runs/seeds --only=004,contradictions

What is done already is not done again. The pages, `figures.json` and `figures.md` are in the folder. The exit code is 1
if a row does not hold; the last lines name these rows.
"""

import fxf.machine.listen  # noqa: F401  First of all.

import sys

from absl import flags

from fxf.config import one_of
from fxf.files import folder_at
from fxf.runs import cli

WORKDIR = flags.DEFINE_string("workdir", "runs/seeds", "the folder of the runs and the pages")
ONLY = flags.DEFINE_list("only", [], "only these seeds, or contradictions")


def main(arguments: list[str]) -> None:
    cli.refuse_arguments(arguments)
    from experiments.seeds.pages import SEEDS, look_at, write_figures

    chosen = [SEEDS[one_of(name, SEEDS, "--only")] for name in ONLY.value or SEEDS]
    folder = folder_at(WORKDIR.value, "--workdir")
    folder.mkdir(parents=True, exist_ok=True)
    found = {seed.number: look_at(seed, folder) for seed in chosen}
    if len(found) == len(SEEDS):
        write_figures(folder, found)
    failed = [f"seed {number}, {row.claim.what}" for number, each in found.items() for row in each if not row.holds]
    n_rows = sum(map(len, found.values()))
    print(f"{folder}: {n_rows} rows, {len(failed)} of them do not hold")
    if failed:
        sys.exit("\n".join(f"does not hold: {line}" for line in failed))


if __name__ == "__main__":
    cli.run(main)
