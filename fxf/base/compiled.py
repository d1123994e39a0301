"""How long JAX compiles."""

import threading
import time
from typing import Any

import jax

_spans: list[tuple[float, float]] = []  # start and duration of what the main thread has traced, lowered and compiled


def seconds_of_compiling() -> float:
    """Returns how long the main thread has traced, lowered and compiled so far, or read programs that are kept."""
    return sum(duration for _, duration in _spans)


def _count(event: str, duration_secs: float, **_: Any) -> None:
    """Counts an event of JAX, in the place of those inside of it, which ended before."""
    if event.startswith("/jax/core/compile/") and threading.current_thread() is threading.main_thread():
        start = time.perf_counter() - duration_secs
        while _spans and _spans[-1][0] >= start:
            _spans.pop()
        _spans.append((start, duration_secs))


jax.monitoring.register_event_duration_secs_listener(_count)
