"""Signals that ask a run to stop, heard between two steps."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def listening() -> Iterator[Callable[[], bool]]:
    """Gives a function that tells whether SIGTERM or SIGINT (Ctrl-C) came; a second one does what it always does.

    Only the main thread can listen; in any other nothing is heard.
    """
    heard = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield heard.is_set
        return
    before = {number: signal.getsignal(number) for number in STOPPING}

    def hear(number: int, frame: FrameType | None) -> None:
        heard.set()
        signal.signal(number, before[signal.Signals(number)])

    for number in STOPPING:
        signal.signal(number, hear)
    try:
        yield heard.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
