"""Signals that ask a script to stop: SIGTERM and SIGHUP end it with exit code 75, SIGINT (Ctrl-C) with 130.

A thread waits for signals, because Python's own handlers do not run while the main thread is inside C++, as in imports
and compiling. A signal ends the process at once, with one line, unless the main thread holds unsaved work. Then the
main thread asks, saves, and ends the process itself. Further signals change nothing, because `timeout` and schedulers
send theirs twice. SIGQUIT (Ctrl-\\) ends a process before it has saved.
"""

import os
import signal
import threading
from contextlib import suppress

from fxf.base import status

EXIT_INTERRUPTED = 75  # "try again": the same command resumes from the newest checkpoint
EXIT_CODES = {signal.SIGTERM: EXIT_INTERRUPTED, signal.SIGHUP: EXIT_INTERRUPTED, signal.SIGINT: 130}

_lock = threading.RLock()  # its holder may end the process
_first: signal.Signals | None = None  # the first signal that came
_held = False  # the main thread has unsaved work
_printed = False  # the last line of the process is printed
_terminal = 2  # a descriptor to which the last line goes too


def listen() -> None:
    """Starts to hear signals; a signal that is ignored already, such as SIGHUP under nohup, stays ignored."""
    heard = {number for number in EXIT_CODES if signal.getsignal(number) != signal.SIG_IGN}
    signal.pthread_sigmask(signal.SIG_BLOCK, heard)  # in this thread, and in all that it starts
    threading.Thread(target=_wait, args=(heard,), name="signals", daemon=True).start()


def hold() -> None:
    """Keeps a signal from ending the process; `asked` then reports it, and the main thread can save."""
    global _held
    with _lock:
        _held = True


def release() -> None:
    """Lets a signal end the process again, also one that came since `hold`."""
    global _held
    with _lock:
        _held = False
        if _first:
            _end(f"stopped by {_first.name}")


def asked() -> bool:
    """Returns whether a signal came that `hold` keeps from ending the process."""
    return _first is not None


def exit_code() -> int:
    """Returns the exit code for the signal that came, or 75 if another process stopped this one."""
    return EXIT_CODES[_first] if _first else EXIT_INTERRUPTED


def print_to(descriptor: int) -> None:
    """Makes the last line go to a descriptor too, while stderr is a log."""
    global _terminal
    _terminal = descriptor


def print_last_line(line: str) -> None:
    """Writes the one line that a process ends with to stderr, and where `print_to` says."""
    global _printed
    with _lock, suppress(OSError):  # a closed terminal
        _printed = True
        status.end()
        for descriptor in {2, _terminal}:
            with suppress(OSError):  # the disk of a log may be full; the terminal should still say so
                os.write(descriptor, f"{line}\n".encode(errors="backslashreplace"))


def _wait(heard: set[signal.Signals]) -> None:
    """Waits for the first signal, which may end the process; another one ends it once the last line is printed."""
    global _first
    number = signal.Signals(signal.sigwait(heard))
    with _lock:
        _first = number
        if not _held:
            _end(f"stopped by {number.name}")
    while True:
        signal.sigwait(heard)
        if _printed:  # nothing is left to wait for
            os._exit(exit_code())


def _end(line: str) -> None:
    """Prints the line and ends the process as abruptly as a kill, which the files of a run survive."""
    if not _printed:
        print_last_line(line)
    os._exit(exit_code())
