"""What a row of the benchmark is, and how its ways are measured, each in a process of its own."""

import contextlib
import itertools
import multiprocessing
import platform
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

ROOT = Path(__file__).parents[2]
PACKAGES = ("fxf", "jax", "jaxlib", "flax", "optax", "numpy", "torch", "transformers", "ctranslate2")

LESS_IS_BETTER = ("s", "MiB")
SHORT = 2.0  # seconds; where work takes less, what a pause costs would count


class Settings(NamedTuple):
    """How long to measure, and what some rows need.

    Attributes:
      repeats: timings of each way, after one that does not count.
      steps: training steps in a timing.
      threads: threads of PyTorch; XLA takes every core.
      quick: whether to shrink the rows that take minutes, to try them.
      ways: the names of the ways to measure; all if empty.
      text, run, sentences: paths that the rows of real text need.
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
    """A way to do the work of a row.

    Attributes:
      run: does the work once. A result that is `Measured` counts in place of its seconds.
      fact: returns what the row compares or tells, after the last turn.
    """

    run: Callable[[], Any]
    fact: Callable[[], Any] = lambda: None


class Row(NamedTuple):
    """Ways to do the same work.

    Attributes:
      what: the work in words.
      unit: the unit of the figures: amounts a second, or `s`, or another if the ways measure themselves.
      amount: the amount of work of a call; 0 if the figures are seconds, or what the ways return.
      ways: each makes a way, in the process where it runs; the first is fxf's. `ceiling` measures the seconds that the
        work takes at least.
      note: returns what is told beside the figures, from the facts of the ways. Fails if they disagree.
    """

    what: str
    unit: str
    amount: float
    ways: Mapping[str, Callable[[], Way]]
    note: Callable[[dict[str, Any]], str] = lambda facts: ""


Rows = Callable[[Settings], Iterator[Row]]


def measured_in_processes(rows: Rows, settings: Settings) -> Iterator[dict[str, Any]]:
    """Yields the figures of each row. Each way has a process of its own, so none has the memory that another keeps."""
    for number, row in enumerate(rows(settings)):
        with contextlib.ExitStack() as stack:
            names = [name for name in row.ways if not settings.ways or name in settings.ways]
            ways = {name: stack.enter_context(_elsewhere(rows, number, name, settings)) for name in names}
            yield measured(row, ways, settings.repeats)


def measured(row: Row, ways: Mapping[str, Way], repeats: int) -> dict[str, Any]:
    """Returns the row's figures. The ways take turns, so that a slow minute of the machine affects all."""
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

    The ways take turns. After such a pause a process loses about 50 ms, until each of its threads has a core. So short
    work runs twice, and the second time counts.
    """
    told, took = _once(way)
    if took < SHORT and not isinstance(told, Measured):
        told, took = _once(way)
    return told if isinstance(told, Measured) else took


def _once(way: Way) -> tuple[Any, float]:
    start = time.perf_counter()
    told = way.run()
    return told, time.perf_counter() - start


@contextlib.contextmanager
def _elsewhere(rows: Rows, number: int, name: str, settings: Settings) -> Iterator[Way]:
    """Gives a way that runs in a process of its own, which ends with the context."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(rows, number, name, settings, theirs))
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    process.start()
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)  # `start` unblocks signals, for which a thread waits
    theirs.close()

    def asked(what: str) -> Any:
        try:
            ours.send(what)
            error, answer = ours.recv()
        except (EOFError, OSError):
            error, answer = "its process ended, perhaps for lack of memory", None
        if error:
            raise RuntimeError(f"{name}: {error}")
        return answer

    try:
        yield Way(lambda: Measured(asked("turn")), lambda: asked("fact"))
    finally:
        ours.close()
        process.join()


def _serve(rows: Rows, number: int, name: str, settings: Settings, connection: Connection) -> None:
    """Makes one way of a row and takes turns, until the other process ends."""
    way = None
    with contextlib.suppress(EOFError):
        while True:
            asked = connection.recv()
            try:
                if way is None:
                    way = next(itertools.islice(rows(settings), number, None)).ways[name]()
                connection.send(("", float(timed(way)) if asked == "turn" else way.fact()))
            except Exception as error:  # the other process tells it
                connection.send((f"{type(error).__name__}: {error}", None))


class Measured(float):
    """A figure that a way measured itself."""


def is_here(module: str) -> bool:
    return find_spec(module.split(".")[0]) is not None


def versions() -> dict[str, str]:
    """Returns the versions of the packages that are installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {"python": platform.python_version(), **found}


def machine() -> dict[str, Any]:
    """Returns what the figures depend on besides the code."""
    processor = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    devices = [device.device_kind for device in jax.devices()]
    load = _lines("/proc/loadavg")
    return {
        "processor": processor[0] if processor else platform.processor(),
        "cores": len(processor),
        "devices": devices,
        "load_at_start": load[0].split()[0] if load else "",
    }


def commit() -> str:
    """Returns the commit of the code, with '+changes' where files differ from it."""
    describe = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+changes"]
    return subprocess.run(describe, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def added_bytes(work: Callable[[], Any]) -> int:
    """Returns the memory that this process held at most during the work, beyond what it held before (on Linux)."""
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    before = _memory("VmRSS")
    work()
    return _memory("VmHWM") - before


def _memory(name: str) -> int:
    (line,) = [line for line in _lines("/proc/self/status") if line.startswith(f"{name}:")]
    return 1024 * int(line.split()[1])


def markdown(results: list[dict[str, Any]]) -> str:
    """Returns the table: for each way the median and the range, and fxf's ratio to it."""
    lines = ["| what | way | figure | least to most | fxf is so many times as good |", "|---|---|---:|---:|---:|"]
    for row in results:
        if "error" in row:
            lines.append(f"| {row['what']} | | left out: {row['error']} | | |")
            continue
        ours = next(iter(row["figures"].values()))["median"]
        for number, (name, figure) in enumerate(row["figures"].items()):
            ratio = figure["median"] / ours if row["unit"] in LESS_IS_BETTER else ours / figure["median"]
            spread = f"{figure['least']:,.4g} to {figure['most']:,.4g}"
            what = f"{row['what']}, {row['unit']}" if not number else ""
            told = f" ({row['note']})" if row["note"] and not number else ""
            against = "" if not number else f"{ratio:.2f}"
            lines.append(f"| {what}{told} | {name} | {figure['median']:,.4g} | {spread} | {against} |")
    return "\n".join(lines) + "\n"


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []
