"""Speed of fxf beside what one would use instead, in one table.

make bench
python -m experiments.benchmarks.bench --rows=nanogpt_cpu,beam --repeats=5
python -m experiments.benchmarks.bench --rows=recipe --text=input.txt
python -m experiments.benchmarks.bench --rows=sentences --run=runs/multi30k_de --sentences=sentences.txt
python -m experiments.benchmarks.bench --rows=gpu_products,gpu_gpt2,gpu_gpt2_scores --steps=20 --output=gpu

The rows are functions of the files `rows_*.py` beside this one; each says what it compares. The ways of a row take
turns, each in a process of its own. The median of each counts, without the first turn, which compiles. The table shows
every row, also where a peer is faster. It is written to OUTPUT.md, and with versions, commit and machine to
OUTPUT.json. Peers that are not installed are left out (`make environment EXTRAS=test,bench`).
"""

import contextlib
import json
import logging
import os
import platform
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
from absl import flags

from experiments.benchmarks import rows_decoding, rows_gpu, rows_process, rows_training
from experiments.benchmarks.rows import Rows, Settings, markdown, measured_in_processes
from experiments.runner import RESULTS, made_now
from fxf.config import one_of
from fxf.errors import one_line
from fxf.machine.devices import require_devices
from fxf.runs import cli

EVERY: dict[str, Rows] = {**rows_training.ROWS, **rows_decoding.ROWS, **rows_process.ROWS, **rows_gpu.ROWS}
ASKED_FOR = ("recipe", "sentences", *rows_gpu.ROWS)  # need a path, or a GPU
PEERS = ("torch", "transformers", "ctranslate2")

ROWS = flags.DEFINE_list("rows", [name for name in EVERY if name not in ASKED_FOR], f"of {', '.join(EVERY)}")
WAYS = flags.DEFINE_list("ways", [], "only these ways, by name; for example fxf,PyTorch")
REPEATS = flags.DEFINE_integer("repeats", 5, "timings of each way", 0)
STEPS = flags.DEFINE_integer("steps", 4, "training steps in a timing", 1)
THREADS = flags.DEFINE_integer("threads", os.cpu_count() or 1, "threads of PyTorch; XLA takes every core", 1)
QUICK = flags.DEFINE_boolean("quick", False, "try the rows at small sizes, once each; the figures mean nothing")
TEXT = flags.DEFINE_string("text", "", "tinyshakespeare's input.txt, for the row `recipe`")
RUN = flags.DEFINE_string("run", "", "run folder of a translation, for the row `sentences`")
SENTENCES = flags.DEFINE_string("sentences", "", "file with a sentence per line, for the row `sentences`")
OUTPUT = flags.DEFINE_string("output", str(RESULTS / "bench/bench"), "the files to write, no ending")


def facts() -> dict[str, Any]:
    """Returns what the figures depend on: commit, versions, machine and its load."""
    made, cpu = made_now(), Path("/proc/cpuinfo")
    names = [line.partition(":")[2].strip() for line in cpu.read_text().splitlines() if line.startswith("model name")]
    for peer in PEERS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            made["versions"][peer] = metadata.version(peer)
    devices = [device.device_kind for device in jax.devices()]
    machine = {"processor": (names or [platform.processor()])[0], "cores": os.cpu_count(), "devices": devices}
    machine["load_at_start"] = f"{os.getloadavg()[0]:.2f}"
    return {"commit": made["git_commit"], "versions": made["versions"], "machine": machine}


def write(output: Path, about: dict[str, Any], results: list[dict[str, Any]]) -> None:
    """Writes the rows that are measured, so that a benchmark that is stopped keeps them."""
    output.parent.mkdir(parents=True, exist_ok=True)
    output.with_suffix(".json").write_text(json.dumps({**about, "rows": results}, indent=1) + "\n")
    head = f"{about['machine']['processor']}, {about['machine']['cores']} cores, commit {about['commit']}, "
    packages = ", ".join(f"{package} {version}" for package, version in about["versions"].items())
    output.with_suffix(".md").write_text(f"{head}{about['started']}; {packages}\n\n{markdown(results)}")


def main(arguments: list[str]) -> None:
    cli.refuse_arguments(arguments)
    names, quick = [one_of(name, EVERY, "--rows") for name in ROWS.value], QUICK.value
    paths = (TEXT.value, RUN.value, SENTENCES.value)
    repeats, steps = (0, 1) if quick else (REPEATS.value, STEPS.value)
    settings = Settings(repeats, steps, THREADS.value, quick, tuple(WAYS.value), *paths)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    require_devices()
    results: list[dict[str, Any]] = []
    about = facts() | {"started": time.strftime("%F %T"), "command": sys.argv[1:], "repeats": settings.repeats}
    output = Path(OUTPUT.value)
    for name in names:
        try:
            for figures in measured_in_processes(EVERY[name], settings):
                results.append({"row": name, **figures})
                print(markdown(results[-1:]).split("\n", 2)[2], end="", flush=True)
                write(output, about, results)
        except Exception as error:  # one row, for example a peer's, must not end the others
            line = one_line(f"{type(error).__name__}: {error}")[:200]
            results.append({"row": name, "what": name, "error": line})
            print(f"{name}: {line}", file=sys.stderr, flush=True)
            write(output, about, results)
    print(f"{output}.md {output}.json")
    if any("error" in row for row in results):
        sys.exit(1)


if __name__ == "__main__":
    cli.run(main)
