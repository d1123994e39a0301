"""Long work, done by several threads."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

X = TypeVar("X")
Y = TypeVar("Y")


def n_cores() -> int:
    """Returns the number of cores that this process may use, such as those of a cluster's job."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def by_threads(function: Callable[[X], Y], items: Iterable[X], n_threads: int = 0) -> Iterator[Y]:
    """Yields `function(item)` of each item in order, computed by threads, at most a few items ahead.

    Args:
      n_threads: 0 for one thread for each core.
    """
    n_threads = n_threads or n_cores()
    waiting: deque[Future[Y]] = deque()
    with ThreadPoolExecutor(n_threads, "work") as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > 2 * n_threads:
                    yield waiting.popleft().result()
            yield from (future.result() for future in waiting)
        finally:
            pool.shutdown(cancel_futures=True)  # after an error or an interruption, drop what has not begun
