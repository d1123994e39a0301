"""Compares the speed of fxf with that of its alternatives, in one table.

make bench
python -m experiments.benchmarks.bench --rows=nanogpt_cpu,beam --repeats=5
python -m experiments.benchmarks.bench --rows=recipe --text=input.txt
python -m experiments.benchmarks.bench --rows=sentences --run=runs/multi30k_de --sentences=sentences.txt
python -m experiments.benchmarks.bench --rows=gpu_products,gpu_gpt2 --steps=20 --output=gpu

The rows are functions in `rows_*.py`; each says what it compares. The implementations of a row take turns, each in
its own process. The first turn, which compiles, does not count; the table has the median of the others. It shows every
row, also if a peer is faster. It is written to OUTPUT.md, and with versions, commit and machine to OUTPUT.json. A peer
that is not installed is an error of its row: `make environment EXTRAS=test,bench` installs them, and `--ways=fxf`
measures fxf alone.
"""

import contextlib
import json
import logging
import os
import platform
import sys
import time
from argparse import Namespace
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

from experiments.benchmarks import rows_decoding, rows_gpu, rows_process, rows_training
from experiments.benchmarks.rows import Rows, Settings, markdown, measured_in_processes
from experiments.runner import RESULTS, made_now, several
from fxf.base.config import one_of
from fxf.base.devices import require_devices
from fxf.base.errors import one_line
from fxf.verbs.flags import Parser, whole

EVERY: dict[str, Rows] = {**rows_training.ROWS, **rows_decoding.ROWS, **rows_process.ROWS, **rows_gpu.ROWS}
ASKED_FOR = ("recipe", "sentences", *rows_gpu.ROWS)  # need a path, or a GPU
PEERS = ("torch", "transformers", "ctranslate2")


def facts() -> dict[str, Any]:
    """Returns commit, versions, machine and its load."""
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
    """Writes the rows so far, so that an interrupted benchmark keeps them."""
    output.parent.mkdir(parents=True, exist_ok=True)
    output.with_suffix(".json").write_text(json.dumps({**about, "rows": results}, indent=1) + "\n")
    head = f"{about['machine']['processor']}, {about['machine']['cores']} cores, commit {about['commit']}, "
    packages = ", ".join(f"{package} {version}" for package, version in about["versions"].items())
    output.with_suffix(".md").write_text(f"{head}{about['started']}; {packages}\n\n{markdown(results)}")


def flags(parser: Parser) -> None:
    usual = [name for name in EVERY if name not in ASKED_FOR]
    parser.flag("rows", several, usual, f"of {', '.join(EVERY)}")
    parser.flag("ways", several, [], "only these ways, by name; for example fxf,PyTorch")
    parser.flag("repeats", whole(0), 5, "timings of each way")
    parser.flag("steps", whole(1), 4, "training steps in a timing")
    parser.flag("threads", whole(1), os.cpu_count() or 1, "threads of PyTorch; XLA takes every core")
    parser.switch("quick", "run each row once at a small size, as a test; ignore its numbers")
    parser.flag("text", default="", doc="tinyshakespeare's input.txt, for the row `recipe`")
    parser.flag("run", default="", doc="run folder of a translation, for the row `sentences`")
    parser.flag("sentences", default="", doc="file with a sentence per line, for the row `sentences`")
    parser.flag("output", default=str(RESULTS / "bench/bench"), doc="the files to write, without an extension")


def main(args: Namespace) -> None:
    names, quick = [one_of(name, EVERY, "--rows") for name in args.rows], args.quick
    paths = (args.text, args.run, args.sentences)
    repeats, steps = (0, 1) if quick else (args.repeats, args.steps)
    settings = Settings(repeats, steps, args.threads, quick, tuple(args.ways), *paths)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    require_devices()
    results: list[dict[str, Any]] = []
    about = facts() | {"started": time.strftime("%F %T"), "command": sys.argv[1:], "repeats": settings.repeats}
    output = Path(args.output)
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
    from fxf.verbs.command import run_verb

    run_verb("bench.py", "experiments.benchmarks.bench", sys.argv[1:])
