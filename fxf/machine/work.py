"""Long work, done by several threads."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

X = TypeVar("X")
Y = TypeVar("Y")

_idle: dict[int, list[ThreadPoolExecutor]] = {}  # threads that wait for work, by how many they are
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # a forked process does not have these threads


def n_cores() -> int:
    """Returns the number of the machine's cores."""
    return os.cpu_count() or 1


def by_threads(function: Callable[[X], Y], items: Iterable[X], n_threads: int = 0) -> Iterator[Y]:
    """Yields `function(item)` of each item in order, computed by threads, at most a few items ahead.

    The threads stay for the next call, as memory that a thread has freed is only its own. Calls at the same time have
    threads of their own.

    Args:
      n_threads: 0 for one thread for each core; 1 for the caller's own, which computes an item when it is asked for.
    """
    if n_threads == 1:  # to begin and end a thread takes as long as the work for a short prompt
        yield from map(function, items)
        return
    n_threads = n_threads or n_cores()
    idle = _idle.setdefault(n_threads, [])
    try:
        pool = idle.pop()
    except IndexError:
        pool = ThreadPoolExecutor(n_threads, "work")
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
        idle.append(pool)
