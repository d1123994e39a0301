"""The race of README.md beside this file: seconds of a training command, and the validation loss that it ends at.

python -m experiments.race --text=input.txt                          # every entry with five seeds, one run at a time
python -m experiments.race --text=input.txt --only=fast --seeds=3    # some entries
python -m experiments.race --text=input.txt --trials                 # what the optimizer of `fast` gives, by fxf try

TEXT is tinyshakespeare's input.txt. --keep writes the table of all entries, or the trials, to experiments/results/race.
Of the trials, the same command goes on where it was stopped.
"""

import fxf.machine.listen  # noqa: F401  First of all.

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from absl import flags

from experiments.race.entries import ENTRIES, TRIALS
from fxf.config import one_of
from fxf.errors import UserError
from fxf.files import folder_at, require_file
from fxf.runs import cli

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "experiments/results/race"
TEXT = flags.DEFINE_string("text", "", "tinyshakespeare's input.txt")
ONLY = flags.DEFINE_list("only", [], f"of {', '.join(ENTRIES)}, or of {', '.join(TRIALS)}")
SEEDS = flags.DEFINE_integer("seeds", 5, "runs of each entry, or pairs of each trial", 2)
KEEP = flags.DEFINE_boolean("keep", False, "write the tables to experiments/results/race")
OF_TRIALS = flags.DEFINE_boolean("trials", False, "try the changes of `fast` instead of the entries")
WORKDIR = flags.DEFINE_string("workdir", "runs/race", "folder of the trials")


def gigaflops() -> float:
    """Returns the speed of a product of two float32 matrices of 1024 x 1024, in XLA, on all cores."""
    from fxf.machine.products import Product
    from fxf.machine.speed import seconds_of_product

    seconds_of_product.cache_clear()
    return 2 * 1024**3 / seconds_of_product(Product("f32", (1024, 1024), (1024, 1024), ((1,), (0,)), ((), ()))) / 1e9


def run_fxf(arguments: list[str], folder: Path) -> None:
    """Runs a command of fxf in a folder, and shows all that it says on standard error.

    Raises:
      UserError: it failed; it has said why.
    """
    command = [sys.executable, "-m", "fxf", *arguments]
    code = subprocess.run(command, stdout=sys.stderr, cwd=folder).returncode
    if code:
        raise UserError(f"fxf {arguments[0]} ended with exit code {code}")


def raced(entry: str, seed: int, folder: Path) -> list[str]:
    """Trains an entry as a user would, and returns its row: seconds from the command to its end, and the loss."""
    speed = gigaflops()
    began = time.perf_counter()
    run = folder / f"{entry.replace(':', '_')}_{seed}"
    options = ["--config.data.path=input.txt", f"--config.seed={seed}", f"--workdir={run}"]
    run_fxf(["train", f"--config={entry}", *options], folder)
    seconds = time.perf_counter() - began
    result = json.loads((run / "result.json").read_text())
    row = [entry, ENTRIES[entry], seed, f"{seconds:.1f}", f"{result['validation_loss']:.4f}", f"{speed:.0f}"]
    print(*row, sep="  ", flush=True)
    return [str(cell) for cell in row]


def race(names: list[str], text: Path) -> None:
    from experiments.kept import keep

    header = ["entry", "target", "seed", "seconds", "validation_loss", "gigaflops"]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shutil.copy(text, folder / "input.txt")
        # Entries take turns, so that a change of the machine's speed meets all of them.
        rows = [raced(name, seed, folder) for seed in range(SEEDS.value) for name in names]
    if KEEP.value:
        keep("race", [header, *sorted(rows, key=lambda row: names.index(row[0]))])


def try_changes(names: list[str], text: Path) -> None:
    folder = folder_at(WORKDIR.value, "--workdir").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(text, folder / "input.txt")
    for name in names:
        changes = [f"--change={change}" for change in TRIALS[name].changes]
        options = ["--metric=-validation_loss", f"--seeds={SEEDS.value}", "--minutes=60", f"--workdir={name}"]
        trial = ["try", "--config=characters:fast", "--config.data.path=input.txt", *changes, *options]
        run_fxf(trial, folder)
        if KEEP.value:
            kept = RESULTS / name
            kept.mkdir(parents=True, exist_ok=True)
            for file in ("plan.json", "table.csv", "verdict.json"):
                shutil.copy(folder / name / file, kept / file)


def main(arguments: list[str]) -> None:
    cli.refuse_arguments(arguments)
    of = TRIALS if OF_TRIALS.value else ENTRIES
    given = [name if OF_TRIALS.value or ":" in name else f"characters:{name}" for name in ONLY.value]
    names = [one_of(name, of, "--only") for name in given] or list(of)
    if KEEP.value and not OF_TRIALS.value and (ONLY.present or SEEDS.present):
        raise UserError("--keep: keeps the table of all entries and five seeds; leave --only and --seeds")
    if not TEXT.value:
        raise UserError("--text: missing; it is tinyshakespeare's input.txt")
    require_file(TEXT.value, "--text")
    (try_changes if OF_TRIALS.value else race)(names, Path(TEXT.value))


if __name__ == "__main__":
    cli.run(main)
