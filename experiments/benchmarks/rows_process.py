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


def start(settings: Settings) -> Iterator[Row]:
    """A run of one step of reversal:example0, from the command to its result, without and with kept programs."""
    del settings

    def one_step(cold: bool) -> Measured:
        with tempfile.TemporaryDirectory() as folder:
            train = ["train", "--config=reversal:example0", "--config.train.steps=21", f"--workdir={folder}/run"]
            command = [sys.executable, "-P", "-m", "fxf", *train]
            return seconds(command, **({"XDG_CACHE_HOME": folder} if cold else {}))

    yield Row(
        "21 steps of reversal:example0 in a process",
        "s",
        0,
        {"warm": _way(one_step, False), "cold": _way(one_step, True)},
    )


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
