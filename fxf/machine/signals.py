"""Signals that ask a script to stop: SIGTERM and SIGHUP end it with exit code 75, SIGINT (Ctrl-C) with 130.

A thread waits for signals, because Python's own handlers do not run while the main thread is inside C++, as in imports
and compiling. A signal ends the process at once, with one line, unless the main thread holds unsaved work. Then the
main thread asks, saves, and ends the process itself. Further signals change nothing, because `timeout` and schedulers
send theirs twice; only the third Ctrl-C of a person ends the process before it has saved.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from fxf.machine import status

EXIT_INTERRUPTED = 75  # "try again": the same command resumes from the newest checkpoint
EXIT_CODES = {signal.SIGTERM: EXIT_INTERRUPTED, signal.SIGHUP: EXIT_INTERRUPTED, signal.SIGINT: 130}
# Time for the main thread to notice a signal while it holds work; schedulers end a process after two minutes.
NOTICE_SECONDS = 100.0
PRESSES = 3  # of Ctrl-C that end the process without saving
APART = 0.5  # seconds between two of them; programs send a second SIGINT within milliseconds

_lock = threading.RLock()  # its holder may end the process
_first: signal.Signals | None = None  # the first signal that came
_held = ""  # names the work that is lost if the process ends at once
_last: Callable[[], None] | None = None  # is called if it does
_noticed = False  # the main thread knows of the signal
_printed = False  # the last line of the process is printed
_to = [2]  # the descriptors that get it


def listen() -> None:
    """Starts to hear signals; a signal that is ignored already, such as SIGHUP under nohup, stays ignored."""
    heard = {number for number in EXIT_CODES if signal.getsignal(number) != signal.SIG_IGN}
    signal.pthread_sigmask(signal.SIG_BLOCK, heard)  # in this thread, and in all that it starts
    threading.Thread(target=_wait, args=(heard,), name="signals", daemon=True).start()


def hold(lost: str, last: Callable[[], None] | None = None) -> None:
    """Keeps a signal from ending the process; `asked` then reports it, and the main thread can save.

    Args:
      lost: the words about unsaved work that are printed if the process has to end before it is saved.
      last: a function that is called in that case.
    """
    global _held, _last
    with _lock:
        _held, _last = lost, last


def release() -> None:
    """Lets a signal end the process again, also one that came since `hold`."""
    hold("")
    if _first:
        _end(f"stopped by {_first.name}")


def asked() -> bool:
    """Returns whether a signal came that `hold` keeps from ending the process."""
    global _noticed
    _noticed = _first is not None
    return _noticed


def exit_code() -> int:
    """Returns the exit code for the signal that came, or 75 if another process stopped this one."""
    return EXIT_CODES[_first] if _first else EXIT_INTERRUPTED


def print_last_line(line: str) -> None:
    """Writes the one line to stderr that a process ends with."""
    global _printed
    with _lock, suppress(OSError):  # a terminal that is gone
        _printed = True
        status.end()
        _write(line)


def _write(line: str) -> None:
    for descriptor in _to:
        with suppress(OSError):
            os.write(descriptor, f"{line}\n".encode(errors="backslashreplace"))


@contextmanager
def last_line_also_to(descriptor: int) -> Iterator[None]:
    """Writes the last line there too, if the process ends while the work inside sends stderr elsewhere."""
    _to.insert(0, descriptor)
    try:
        yield
    finally:
        _to.remove(descriptor)


def _wait(heard: set[signal.Signals]) -> None:
    """Waits for the first signal, which may end the process, then for the presses of Ctrl-C that end it unsaved."""
    global _first
    number = signal.Signals(signal.sigwait(heard))
    with _lock:
        _first = number
        if not _held:
            _end(f"stopped by {number.name}")
    limit = threading.Timer(NOTICE_SECONDS, lambda: None if _noticed else _end_unsaved())
    limit.daemon = True
    limit.start()
    pressed, presses = time.monotonic(), int(number == signal.SIGINT)
    while presses < PRESSES:
        number = signal.Signals(signal.sigwait(heard))
        if _printed:  # nothing is left to wait for
            _end("")
        if number == signal.SIGINT and time.monotonic() - pressed >= APART:
            pressed, presses = time.monotonic(), presses + 1
            if presses == PRESSES - 1:
                _write(f"stopping; one more Ctrl-C ends at once: {_held}")
    _end_unsaved()


def _end_unsaved() -> None:
    assert _first
    if _last:
        _last()
    _end(f"stopped by {_first.name}; {_held}")


def _end(line: str) -> None:
    """Prints the line and ends the process as abruptly as a kill, which the files of a run survive."""
    with _lock:
        if not _printed:
            print_last_line(line)
        os._exit(exit_code())
