"""Speed of fxf beside what one would use instead, and beside what the machine can do, in one table.

make bench
python experiments/benchmarks/bench.py --rows=nanogpt_cpu,beam --repeats=5
python experiments/benchmarks/bench.py --rows=recipe --text=input.txt
python experiments/benchmarks/bench.py --rows=sentences --run=runs/multi30k_de --sentences=sentences.txt
python experiments/benchmarks/bench.py --rows=gpu_products,gpu_gpt2,gpu_gpt2_scores --steps=20 --output=gpu

The rows are functions of the files `rows_*.py` beside this one; each says what it compares. The ways of a row take
turns, each in a process of its own. The median of each counts, without the first turn, which compiles. `ceiling` is the
step's products, each at the rate that a product of its shape has here alone, and the optimizer's bytes at copying
speed, measured between the turns.
The table shows every row, also where a peer is faster. It is written to OUTPUT.md, and with versions, commit and
machine to OUTPUT.json. Peers that are not installed are left out (`make environment EXTRAS=test,bench`).
"""

import fxf.machine.listen  # noqa: F401  First of all.

import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

from absl import flags
from rows import ROOT, Rows, Settings, commit, machine, markdown, measured_in_processes, versions
from rows_decoding import ROWS as DECODING
from rows_gpu import ROWS as GPU
from rows_growth import ROWS as GROWTH
from rows_machine import ROWS as MACHINE
from rows_process import ROWS as PROCESS
from rows_recipe import ROWS as RECIPE
from rows_training import ROWS as TRAINING

from fxf.config import one_of
from fxf.errors import one_line
from fxf.machine.devices import require_devices
from fxf.runs import cli

EVERY: dict[str, Rows] = {**MACHINE, **TRAINING, **GROWTH, **RECIPE, **DECODING, **PROCESS, **GPU}
ASKED_FOR = ("recipe", "sentences", *GPU)  # need a path, or a GPU

ROWS = flags.DEFINE_list("rows", [name for name in EVERY if name not in ASKED_FOR], f"of {', '.join(EVERY)}")
WAYS = flags.DEFINE_list("ways", [], "only these ways, by name; for example fxf,PyTorch")
REPEATS = flags.DEFINE_integer("repeats", 5, "timings of each way", 0)
STEPS = flags.DEFINE_integer("steps", 4, "training steps in a timing", 1)
THREADS = flags.DEFINE_integer("threads", os.cpu_count() or 1, "threads of PyTorch; XLA takes every core", 1)
QUICK = flags.DEFINE_boolean("quick", False, "try the rows at small sizes, once each; the figures mean nothing")
TEXT = flags.DEFINE_string("text", "", "tinyshakespeare's input.txt, for the row `recipe`")
RUN = flags.DEFINE_string("run", "", "run folder of a translation, for the row `sentences`")
SENTENCES = flags.DEFINE_string("sentences", "", "file with a sentence per line, for the row `sentences`")
OUTPUT = flags.DEFINE_string("output", str(ROOT / "experiments/results/bench/bench"), "the files to write, no ending")


def write(output: Path, facts: dict[str, Any], results: list[dict[str, Any]]) -> None:
    """Writes the rows that are measured, so that a benchmark that is stopped keeps them."""
    output.parent.mkdir(parents=True, exist_ok=True)
    output.with_suffix(".json").write_text(json.dumps({**facts, "rows": results}, indent=1) + "\n")
    about = f"{facts['machine']['processor']}, {facts['machine']['cores']} cores, commit {facts['commit']}, "
    packages = ", ".join(f"{package} {version}" for package, version in facts["versions"].items())
    output.with_suffix(".md").write_text(f"{about}{facts['started']}; {packages}\n\n{markdown(results)}")


def main(arguments: list[str]) -> None:
    cli.refuse_arguments(arguments)
    names = [one_of(name, EVERY, "--rows") for name in ROWS.value]
    quick = QUICK.value
    settings = Settings(
        0 if quick else REPEATS.value,
        1 if quick else STEPS.value,
        THREADS.value,
        quick,
        tuple(WAYS.value),
        TEXT.value,
        RUN.value,
        SENTENCES.value,
    )
    logging.getLogger("transformers").setLevel(logging.ERROR)
    require_devices()
    started, results = time.strftime("%F %T"), []
    facts: dict[str, Any] = {"commit": commit(), "versions": versions(), "machine": machine(), "started": started}
    facts |= {"command": sys.argv[1:], "repeats": settings.repeats}
    output = Path(OUTPUT.value)
    for name in names:
        try:
            for figures in measured_in_processes(EVERY[name], settings):
                results.append({"row": name, **figures})
                print(markdown(results[-1:]).split("\n", 2)[2], end="", flush=True)
                write(output, facts, results)
        except Exception as error:  # one row, for example a peer's, must not end the others
            line = one_line(f"{type(error).__name__}: {error}")[:200]
            results.append({"row": name, "what": name, "error": line})
            print(f"{name}: {line}", file=sys.stderr, flush=True)
            write(output, facts, results)
    print(f"{output}.md {output}.json")
    if any("error" in row for row in results):
        sys.exit(1)


if __name__ == "__main__":
    cli.run(main)
