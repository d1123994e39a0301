"""Long work, done by several threads."""

import functools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

X = TypeVar("X")
Y = TypeVar("Y")


def n_cores() -> int:
    """Returns the number of the machine's cores."""
    return os.cpu_count() or 1


def by_threads(function: Callable[[X], Y], items: Iterable[X], n_threads: int = 0) -> Iterator[Y]:
    """Yields `function(item)` of each item in order, computed by threads, at most a few items ahead.

    Calls with the same number of threads share them, so the function must not wait for another such call.

    Args:
      n_threads: 0 for one thread for each core.
    """
    n_threads = n_threads or n_cores()
    pool = _pool(n_threads)
    waiting: deque[Future[Y]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > 2 * n_threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()  # what has not begun is not needed after an error or an interruption
        wait(waiting)


@functools.cache
def _pool(n_threads: int) -> ThreadPoolExecutor:
    """Returns threads that stay, because to begin and end one takes as long as the work for a short prompt."""
    return ThreadPoolExecutor(n_threads)


os.register_at_fork(after_in_child=_pool.cache_clear)  # a fork has none of the threads
