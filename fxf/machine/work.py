"""Long work: done by several threads, and its progress shown."""

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

SHOWN_EVERY = 10.0  # seconds between lines of progress, where there is no terminal

X = TypeVar("X")
Y = TypeVar("Y")


def by_threads(function: Callable[[X], Y], items: Iterable[X]) -> Iterator[Y]:
    """Yields `function(item)` of each item in order, computed by a thread for each core, at most a few items ahead."""
    n_threads = os.cpu_count() or 1
    with ThreadPoolExecutor(n_threads) as pool:
        waiting: deque[Future[Y]] = deque()
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > 2 * n_threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


@contextmanager
def progress(name: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yields `advance(n)`, which shows the progress on a bar, or in lines if stderr is not a terminal."""
    if sys.stderr.isatty():
        from rich.console import Console  # imported here, because without a terminal no bar is shown
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task(name, total=total)
            yield lambda n: bar.advance(task, n)
        return
    done, shown = 0, time.monotonic()

    def advance(n: int) -> None:
        nonlocal done, shown
        done += n
        if time.monotonic() - shown >= SHOWN_EVERY:
            shown = time.monotonic()
            print(f"{name}: {done / max(total, 1):.0%}", file=sys.stderr, flush=True)

    yield advance
