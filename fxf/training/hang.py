"""A line about steps that do not end."""

import logging
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

from fxf.base.signals import EXIT_INTERRUPTED
from fxf.training.log import LogConfig

log = logging.getLogger(__name__)

LEAST = 60.0  # seconds that steps may take at any rate
COMPILER = "jax/_src/compiler.py"  # in it a thread compiles, which may take long


@contextmanager
def watched(step: int, usual: float, config: LogConfig) -> Iterator[None]:
    """Warns once, in one line, if what runs inside takes many times its usual seconds, compiling aside.

    It says where this thread stands. With `log.hang_ends` the process then ends with exit code 75.

    Args:
      step: the step before.
      usual: in seconds; 0 if it is not known.
    """
    ended, of_steps = threading.Event(), threading.get_ident()
    if config.hang and usual:
        Thread(target=_watch, args=(step, usual, config, ended, of_steps), name="hang", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _watch(step: int, usual: float, config: LogConfig, ended: threading.Event, of_steps: int) -> None:
    limit = max(config.hang * usual, LEAST)
    while not ended.wait(limit):
        stack = traceback.extract_stack(sys._current_frames().get(of_steps))
        if any(call.filename.endswith(COMPILER) for call in stack):
            continue
        text = "warning: step %d: no step has ended for %.0f s, where %.2g s are usual; %s%s"
        ends = f"; the process ends with exit code {EXIT_INTERRUPTED}" if config.hang_ends else ""
        log.warning(text, step, limit, usual, standing(stack), ends)
        if config.hang_ends:
            os._exit(EXIT_INTERRUPTED)
        return


def standing(stack: traceback.StackSummary) -> str:
    """Returns where a thread stands: the newest call of fxf, and the newest of all."""
    of_fxf = [call for call in stack if f"{os.sep}fxf{os.sep}" in call.filename]
    places = [f"{call.name} ({call.filename}:{call.lineno})" for call in (*of_fxf[-1:], *stack[-1:])]
    return f"it is in {', in '.join(dict.fromkeys(places))}"
