"""Signals that ask a script to stop: SIGTERM and SIGHUP end it with exit code 75, SIGINT (Ctrl-C) with 130.

A thread waits for them, since Python's own handlers do not run while the main thread is inside C++, as in imports and
compiling. A signal ends the process at once, with one line, unless the main thread holds something unsaved: then the
main thread is told, saves, and ends the process itself. A second signal ends the process at once in either case.
"""

import _thread
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

EXIT_INTERRUPTED = 75  # "try again": the same command goes on from the newest checkpoint
EXIT_CODES = {signal.SIGTERM: EXIT_INTERRUPTED, signal.SIGHUP: EXIT_INTERRUPTED, signal.SIGINT: 130}
# For the main thread to notice, where it holds something; our schedulers end a process after two minutes.
NOTICE_SECONDS = 100.0

_lock = threading.RLock()  # who has it may end the process
_first: signal.Signals | None = None  # that came
_held = ""  # what is lost if the process ends at once
_noticed = False  # the main thread knows of it
_abandoning = False
_told = False  # the line that a process ends with is printed


class Abandoned(BaseException):
    """Work that need not be finished was under way when a signal came."""


def listen() -> None:
    """Hears signals from here on; one that is ignored already, as SIGHUP is under nohup, stays ignored."""
    heard = {number for number in EXIT_CODES if signal.getsignal(number) != signal.SIG_IGN}
    signal.pthread_sigmask(signal.SIG_BLOCK, heard)  # in this thread, and in all that it starts
    for number in heard:
        signal.signal(number, _abandon)  # runs by `interrupt_main` alone
    threading.Thread(target=_wait, args=(heard,), name="signals", daemon=True).start()


def hold(lost: str) -> None:
    """A signal no longer ends the process: `asked` tells of it, so that the main thread can save.

    Args:
      lost: what to say if the process has to end before that.
    """
    global _held
    with _lock:
        _held = lost


def release() -> None:
    """A signal ends the process again, also one that came while the process held something."""
    global _held
    with _lock:
        _held = ""
        if _first:
            _end(f"stopped by {_first.name}")


def asked() -> bool:
    """Tells whether a signal came that `hold` keeps from ending the process."""
    global _noticed
    _noticed = _first is not None
    return _noticed


@contextmanager
def abandoning() -> Iterator[None]:
    """What stands inside is abandoned where a signal comes that `hold` keeps from ending the process.

    Raises:
      Abandoned: one came, now or before.
    """
    global _abandoning
    _abandoning = True
    try:
        if asked():
            raise Abandoned
        yield
    finally:
        _abandoning = False


def exit_code() -> int:
    """Returns the exit code for the signal that came; a process that stops for another one's signal has heard none."""
    return EXIT_CODES[_first] if _first else EXIT_INTERRUPTED


def tell(line: str) -> None:
    """Writes the one line to stderr that a process ends with."""
    global _told
    with _lock, suppress(OSError):  # a terminal that is gone, or a log on a full disk
        _told = True
        # A progress bar is wiped out, and the cursor that it hid comes back.
        start = "\r\x1b[2K\x1b[?25h" if os.isatty(2) else ""
        os.write(2, f"{start}{line}\n".encode(errors="backslashreplace"))


def _wait(heard: set[signal.Signals]) -> None:
    global _first
    number = signal.Signals(signal.sigwait(heard))
    with _lock:
        _first = number
        if not _held:
            _end(f"stopped by {number.name}")
    _thread.interrupt_main(number)
    limit = threading.Timer(NOTICE_SECONDS, lambda: None if _noticed else _end_unsaved())
    limit.daemon = True
    limit.start()
    signal.sigwait(heard)
    _end_unsaved()


def _abandon(number: int, frame: FrameType | None) -> None:
    global _abandoning
    if _abandoning and asked():
        _abandoning = False
        raise Abandoned


def _end_unsaved() -> None:
    assert _first
    _end(f"stopped by {_first.name}; {_held}")


def _end(line: str) -> None:
    """Ends the process as a kill would, but for the line and the code: the files that a run writes bear that."""
    with _lock:
        if not _told:
            tell(line)
        os._exit(exit_code())
