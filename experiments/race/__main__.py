"""Runs the race of README.md in this folder: seconds of a training command, and its final validation loss.

python -m experiments.race --text=input.txt                          # every entry with five seeds, one run at a time
python -m experiments.race --text=input.txt --only=fast --seeds=3    # only some

TEXT is tinyshakespeare's input.txt. --keep writes the table of all entries to experiments/results/race, and into
README.md.
"""

import fxf.base.listen  # noqa: F401  First of all.

import shutil
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

from experiments.benchmarks.rows import timed
from experiments.benchmarks.rows_process import product_ways
from experiments.race.entries import ENTRIES, KEPT, PAGE, table
from experiments.runner import command, filled, keep, several, verb
from fxf.base.config import one_of
from fxf.base.errors import UserError
from fxf.base.files import read_json, require_file
from fxf.verbs.flags import Parser, whole


def gigaflops() -> float:
    """Returns XLA's speed for products of two 1024 x 1024 float32 matrices, on all cores."""
    n, times = 1024, 20
    way = product_ways(n, times, "float32", threads=0)["XLA"]()
    return times * 2 * n**3 / min(timed(way) for _ in range(3)) / 1e9


def raced(entry: str, seed: int, folder: Path) -> dict[str, Any]:
    """Trains an entry as a user would; returns its row with the seconds of the whole command, and the loss."""
    row = {"entry": entry, "target": ENTRIES[entry], "seed": seed}
    speed, began, run = gigaflops(), time.perf_counter(), folder / f"{entry.replace(':', '_')}_{seed}"
    options = ["--config.data.path=input.txt", f"--config.seed={seed}", f"--workdir={run}"]
    command(verb("train", f"--config={entry}", *options), cwd=folder)
    row["seconds"] = f"{time.perf_counter() - began:.1f}"
    row["validation_loss"] = f"{read_json(run / 'result.json', 'a result')['validation_loss']:.4f}"
    row["gigaflops"] = f"{speed:.0f}"
    print(*row.values(), sep="  ", flush=True)
    return row


def race(names: list[str], text: Path, seeds: int, keep_them: bool) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        shutil.copy(text, Path(temporary) / "input.txt")
        # Entries take turns, so that a change of the machine's speed affects all.
        rows = [raced(name, seed, Path(temporary)) for seed in range(seeds) for name in names]
    if keep_them:
        keep(KEPT, sorted(rows, key=lambda row: names.index(row["entry"])))


def flags(parser: Parser) -> None:
    parser.flag("text", doc="tinyshakespeare's input.txt")
    parser.flag("only", several, [], f"of {', '.join(ENTRIES)}")
    parser.flag("seeds", whole(2), doc="runs of each entry, by default 5")
    parser.switch("keep", "keep the results, and fill the table of the page")


def main(args: Namespace) -> None:
    given = [name if ":" in name else f"characters:{name}" for name in args.only]
    names = [one_of(name, ENTRIES, "--only") for name in given] or list(ENTRIES)
    if args.keep and (args.only or args.seeds):
        raise UserError("--keep: keeps the table of all entries and five seeds; leave --only and --seeds")
    if not args.text:
        raise UserError("--text: missing; it is tinyshakespeare's input.txt")
    require_file(args.text, "--text")
    race(names, Path(args.text), args.seeds or 5, args.keep)
    if args.keep:
        PAGE.write_text(filled(PAGE, {"record": table()}))


if __name__ == "__main__":
    from fxf.verbs.command import run_verb

    run_verb("python -m experiments.race", "experiments.race.__main__", sys.argv[1:])
