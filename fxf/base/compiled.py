"""How long JAX compiles."""

import threading
import time
from typing import Any

import jax

_spans: list[tuple[float, float]] = []  # (start, duration) of each trace, lowering and compilation


def seconds_of_compiling() -> float:
    """Returns how long the main thread has traced, lowered, compiled and read cached programs so far."""
    return sum(duration for _, duration in _spans)


def _count(event: str, duration_secs: float, **_: Any) -> None:
    """Records an event of JAX in the place of the events nested in it, which ended earlier."""
    if event.startswith("/jax/core/compile/") and threading.current_thread() is threading.main_thread():
        start = time.perf_counter() - duration_secs
        while _spans and _spans[-1][0] >= start:
            _spans.pop()
        _spans.append((start, duration_secs))


jax.monitoring.register_event_duration_secs_listener(_count)
