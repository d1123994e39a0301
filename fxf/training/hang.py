"""A warning when steps do not end."""

import logging
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

log = logging.getLogger(__name__)

LEAST = 60.0  # seconds before any warning
COMPILER = "jax/_src/compiler.py"  # a thread in this file compiles, which may take long


@contextmanager
def watched(step: int, usual: float, factor: float) -> Iterator[None]:
    """Warns once, in one line, if the code inside takes `factor` times its usual seconds, unless it is compiling.

    The line says where this thread is: the innermost call in fxf, and the innermost of all.

    Args:
      step: the last finished step.
      usual: the usual seconds; 0 if unknown.
      factor: 0 for no warning.
    """
    ended, limit = threading.Event(), max(factor * usual, LEAST)
    if factor and usual:
        Thread(target=_watch, args=(step, usual, limit, ended, threading.get_ident()), daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _watch(step: int, usual: float, limit: float, ended: threading.Event, of_steps: int) -> None:
    while not ended.wait(limit):
        stack = traceback.extract_stack(sys._current_frames().get(of_steps))
        if any(call.filename.endswith(COMPILER) for call in stack):
            continue
        of_fxf = [call for call in stack if f"{os.sep}fxf{os.sep}" in call.filename]
        places = [f"{call.name} ({call.filename}:{call.lineno})" for call in (*of_fxf[-1:], *stack[-1:])]
        text = "warning: step %d: no step has ended for %.0f s, where %.2g s are usual; it is in %s"
        log.warning(text, step, limit, usual, ", in ".join(dict.fromkeys(places)))
        return
