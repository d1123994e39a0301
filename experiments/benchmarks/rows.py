"""Rows of the benchmark, and how their implementations ("ways") are measured, each in its own process."""

import contextlib
import functools
import itertools
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fxf.base.errors import UserError

LESS_IS_BETTER = ("s", "MiB")
SHORT = 2.0  # seconds; the cost of a pause would distort shorter work


class Settings(NamedTuple):
    """How long to measure, and paths that some rows need.

    Attributes:
      repeats: timings of each way, after a discarded first one.
      steps: training steps per timing.
      threads: threads of PyTorch; XLA takes every core.
      quick: whether to shrink the rows, as a test.
      ways: names of the ways to measure; all if empty.
      text, run, sentences: paths for the rows on real text.
    """

    repeats: int
    steps: int
    threads: int
    quick: bool = False
    ways: tuple[str, ...] = ()
    text: str = ""
    run: str = ""
    sentences: str = ""


class Way(NamedTuple):
    """An implementation of a row's work.

    Attributes:
      run: does the work once. If it returns a `Measured`, that counts instead of its seconds.
      fact: called after the last turn; returns what the row's note compares or reports.
    """

    run: Callable[[], Any]
    fact: Callable[[], Any] = lambda: None


class Row(NamedTuple):
    """Implementations of the same work.

    Attributes:
      what: the work in words.
      unit: the unit of the results: amounts per second, `s`, or another if the ways measure themselves.
      amount: work per call; 0 if results are seconds, or what the ways return.
      ways: functions that make a way, in the process where it runs; the first is fxf's.
      note: returns a remark for the table from the facts of the ways, or fails if they disagree.
    """

    what: str
    unit: str
    amount: float
    ways: Mapping[str, Callable[[], Way]]
    note: Callable[[dict[str, Any]], str] = lambda facts: ""


class Sizes(NamedTuple):
    """Sizes of a GPT with d_ff = 4 d_model.

    Attributes:
      gpt2: whether to use GPT-2's biases and approximation of GELU.
      dtype: the type of products; weights and losses are float32.
    """

    n_layers: int
    d_model: int
    n_heads: int
    length: int
    vocab_size: int
    gpt2: bool = False
    dtype: str = "float32"


Rows = Callable[[Settings], Iterator[Row]]


class Measured(float):
    """A result that a way measured itself."""


def measured_in_processes(rows: Rows, settings: Settings) -> Iterator[dict[str, Any]]:
    """Yields the results of each row. Each way has its own process, so none has the memory that another keeps."""
    context = multiprocessing.get_context("spawn")
    for number, row in enumerate(rows(settings)):
        with contextlib.ExitStack() as stack:
            ways = {}
            for name in row.ways:
                if not settings.ways or name in settings.ways:
                    pool = stack.enter_context(ProcessPoolExecutor(1, context))
                    ask = functools.partial(_asked, pool, rows, number, name, settings)
                    ways[name] = Way(functools.partial(ask, "turn"), functools.partial(ask, "fact"))
            if not ways:
                raise UserError(f"--ways: {row.what} has {', '.join(row.ways)}; got {', '.join(settings.ways)}")
            yield measured(row, ways, settings.repeats)


def _asked(pool: ProcessPoolExecutor, rows: Rows, number: int, name: str, settings: Settings, what: str) -> Any:
    try:
        told = pool.submit(_serve, rows, number, name, settings, what).result()
    except Exception as error:
        raise RuntimeError(f"{name}: {type(error).__name__}: {error}") from error
    return Measured(told) if what == "turn" else told


_made: dict[str, Way] = {}  # this process's way


def _serve(rows: Rows, number: int, name: str, settings: Settings, what: str) -> Any:
    """Runs a turn of a way, which is made at the first turn, or returns its fact."""
    if name not in _made:
        _made[name] = next(itertools.islice(rows(settings), number, None)).ways[name]()
    return float(timed(_made[name])) if what == "turn" else _made[name].fact()


def measured(row: Row, ways: Mapping[str, Way], repeats: int) -> dict[str, Any]:
    """Returns the row's results. The ways take turns, so that a slow minute of the machine affects all."""
    turns: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(repeats + 1):
        for name, way in ways.items():
            taken = timed(way)
            if turn or repeats == 0:
                turns[name].append(taken)
    figures = {}
    for name, seconds in turns.items():
        values = [row.amount / value if row.amount else float(value) for value in seconds]
        figures[name] = {"median": float(np.median(values)), "least": min(values), "most": max(values)}
    note = row.note({name: way.fact() for name, way in ways.items()})
    return {"what": row.what, "unit": row.unit, "figures": figures, "note": note}


def timed(way: Way) -> float:
    """Returns the seconds that a way takes, or what it measured itself.

    After a pause for other ways' turns, a process loses about 50 ms until each thread has a core. So short
    work runs twice, and the second time counts.
    """
    for _ in range(2):
        start = time.perf_counter()
        told = way.run()
        took = time.perf_counter() - start
        if isinstance(told, Measured):
            return told
        if took >= SHORT:
            break
    return took


def added_bytes(work: Callable[[], Any]) -> int:
    """Returns the peak memory of this process during the work, minus that before (on Linux)."""
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = _memory("VmRSS")
    work()
    return _memory("VmHWM") - before


def _memory(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def markdown(results: list[dict[str, Any]]) -> str:
    """Returns the table: for each way, median, range, and fxf's ratio to it."""
    lines = ["| what | way | median | range | ratio of fxf |", "|---|---|---:|---:|---:|"]
    for row in results:
        if "error" in row:
            lines.append(f"| {row['what']} | | not measured: {row['error']} | | |")
            continue
        ours = next(iter(row["figures"].values()))["median"]
        told = f" ({row['note']})" if row["note"] else ""
        for number, (name, figure) in enumerate(row["figures"].items()):
            ratio = figure["median"] / ours if row["unit"] in LESS_IS_BETTER else ours / figure["median"]
            spread = f"{figure['least']:,.4g} to {figure['most']:,.4g}"
            what, against = ("", f"{ratio:.2f}") if number else (f"{row['what']}, {row['unit']}{told}", "")
            lines.append(f"| {what} | {name} | {figure['median']:,.4g} | {spread} | {against} |")
    return "\n".join(lines) + "\n"
