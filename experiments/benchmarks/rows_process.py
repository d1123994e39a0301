"""Rows of whole processes: imports, start-up cold and warm, peak memory, and a sweep."""

import functools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rows import ROOT, Measured, Row, Rows, Settings, Way, is_here
from rows_training import NANOGPT_CPU, NANOGPT_ROWS

POINTS = 24  # of the sweep of configs/reversal.py
MODULES = ("fxf", "jax", "flax.linen", "torch", "transformers")


def output(command: list[str], **environment: str) -> str:
    """Returns what a process prints. Raises the last line of its errors if it fails."""
    env = {**os.environ, **environment}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError((done.stderr.splitlines() or ["no message"])[-1])
    return done.stdout


def seconds(command: list[str], **environment: str) -> Measured:
    """Returns the seconds that a process takes."""
    start = time.perf_counter()
    output(command, **environment)
    return Measured(time.perf_counter() - start)


def imports(settings: Settings) -> Iterator[Row]:
    """The import of fxf's model and training functions, beside other libraries'."""
    del settings
    programs = {"fxf.fit": "import fxf; fxf.fit", **{name: f"import {name}" for name in MODULES if is_here(name)}}
    ways = {name: _way(seconds, [sys.executable, "-c", code]) for name, code in programs.items()}
    yield Row("import", "s", 0, ways)


def seconds_to_line(beginning: str, command: list[str], **environment: str) -> Measured:
    """Returns the seconds until a process prints a line with this beginning. It runs on to its end.

    Raises the last line that it prints if it fails, or has no such line.
    """
    start, found, line = time.perf_counter(), 0.0, "no message"
    env = {**os.environ, **environment}
    with subprocess.Popen(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        for line in process.stdout or ():
            if not found and line.startswith(beginning):
                found = time.perf_counter() - start
    if process.returncode or not found:
        raise RuntimeError(line.strip())
    return Measured(found)


def start(settings: Settings) -> Iterator[Row]:
    """A short run of reversal:example0, to its first step and to its result, without and with kept programs."""
    del settings

    def run(measure: Callable[..., Measured], cold: bool, *changes: str) -> Measured:
        with tempfile.TemporaryDirectory() as folder:
            train = ["train", "--config=reversal:example0", "--config.train.steps=21", "--config.log.every=1", *changes]
            command = [sys.executable, "-P", "-m", "fxf", *train, f"--workdir={folder}/run"]
            return measure(command, **({"XDG_CACHE_HOME": folder} if cold else {}))

    other = ("--config.seed=7", "--config.optimizer.learning_rate=0.002")
    ways: dict[str, tuple[Any, ...]] = {
        "warm": (False,),
        "warm, another seed and rate": (False, *other),
        "cold": (True,),
    }
    whats = {
        "command to first step of reversal:example0": functools.partial(seconds_to_line, "step 1/"),
        "21 steps of reversal:example0 in a process": seconds,
    }
    for what, measure in whats.items():
        yield Row(what, "s", 0, {name: _way(run, measure, *args) for name, args in ways.items()})


def peak_memory(settings: Settings) -> Iterator[Row]:
    """The memory that training adds to a process that has imported all libraries, each way in one of its own."""

    def peak(way: str) -> Measured:
        return _of_training(f"memory_of({way!r})")

    names = ["fxf", *(["PyTorch"] if is_here("torch") else []), "Flax Linen", "Flax NNX"]
    ways = {name: _way(peak, name) for name in names}
    del settings
    yield Row("peak memory that training adds, nanoGPT's CPU size", "MiB", 0, ways)


def kept_memory(settings: Settings) -> Iterator[Row]:
    """Training where freed memory stays with the process, beside what variables of glibc's malloc choose."""
    steps = 2 if settings.quick else 50
    chosen = {
        "fxf": {},
        "malloc's defaults": {"MALLOC_ARENA_TEST": "8"},  # the default; the variable is what counts
        "huge pages": {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"},
    }
    call = f"seconds_of_steps({steps})"
    ways = {name: _way(_of_training, call, **variables) for name, variables in chosen.items()}
    tokens = NANOGPT_ROWS * NANOGPT_CPU[3] * steps
    yield Row("training steps at nanoGPT's CPU size, where memory is kept", "tokens/s", tokens, ways)


def sweep(settings: Settings) -> Iterator[Row]:
    """README's 24 points: together in two processes, and one after another, each a process (two of them, times 12)."""
    steps = ["--config.train.steps=25"] if settings.quick else []
    common = [sys.executable, "-P", "-m", "fxf"]

    def together() -> None:
        with tempfile.TemporaryDirectory() as folder:
            workers = [f"--workdir={folder}/sweep", f"--workers={min(2, os.cpu_count() or 1)}", "--together=12"]
            seconds([*common, "sweep", "--config=reversal:example0", *steps, *workers])

    def alone() -> Measured:
        total = 0.0
        for depth in (1, 2):
            folder = tempfile.mkdtemp()
            changes = [f"--config.model.n_layers={depth}", "--config.optimizer.learning_rate=0.0004", *steps]
            total += seconds([*common, "train", "--config=reversal:example0", *changes, f"--workdir={folder}/run"])
            shutil.rmtree(folder)
        return Measured(total * POINTS / 2)

    yield Row(
        f"sweep of {POINTS} points", "points/s", POINTS, {"fxf": _way(together), "one after another": _way(alone)}
    )


def _way(run: Callable[..., Any], *args: Any, **options: Any) -> Callable[[], Way]:
    """Returns what makes the way that calls a function."""
    return lambda: Way(functools.partial(run, *args, **options))


def _of_training(call: str, **environment: str) -> Measured:
    """Returns what a call of a function of `rows_training.py` returns in a process of its own."""
    here = str(Path(__file__).parent)
    code = f"import sys; sys.path.insert(0, {here!r}); import rows_training; print(rows_training.{call})"
    return Measured(output([sys.executable, "-c", code], **environment).split()[-1])


ROWS: dict[str, Rows] = {
    "imports": imports,
    "start": start,
    "peak_memory": peak_memory,
    "kept_memory": kept_memory,
    "sweep": sweep,
}
