"""The line that says what a process does: its stages, their progress, and the time.

On a terminal one line of stderr is written again and again by a thread, which goes on while XLA compiles. Elsewhere, as
in the log of a job, a line follows when nothing was said for some time.
"""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

from fxf.errors import one_line

TICK = 0.25  # seconds between two looks at the stages
SILENCE = (30.0, 120.0)  # seconds without a line, where there is no terminal: before the first line, and at most
ERASE = "\r\x1b[2K"


class Stage:
    """A part of the work: how much of it is done, and a text about it."""

    def __init__(self, name: str, total: int, done: int) -> None:
        self.name, self.total, self.done, self.text = name, total, done, ""
        self.thread_id = threading.get_ident()
        self._started = time.monotonic()
        self._first: tuple[float, int] | None = None  # when something was done first, and how much was done then

    def advance(self, n: int = 1) -> None:
        self.at(self.done + n)

    def at(self, done: int) -> None:
        """Says how much is done. The time before the first call, as for compiling, does not count for the time left."""
        self.done = done
        self._first = self._first or (time.monotonic(), done)

    def short(self) -> str:
        """Returns the name and how much is done."""
        return f"{self.name} {self.done / self.total:.0%}" if self.total else self.name

    def long(self) -> str:
        """Returns the name, the seconds since the start, how much is done, the text, and the time left."""
        now = time.monotonic()
        parts = [self.short(), str(timedelta(seconds=int(now - self._started)))]
        if self._first and self._first[1] < self.done < self.total:
            left = (now - self._first[0]) * (self.total - self.done) / (self.done - self._first[1])
            parts.append(f"left {timedelta(seconds=round(left))}")
        return "  ".join(filter(None, [*parts, self.text]))


class _Line:
    """The line of this process. `lock` is held while anything is written to the terminal."""

    def __init__(self) -> None:
        self.stages: list[Stage] = []
        self.lock = threading.RLock()
        self.drawn = ""  # what stands on the terminal
        self.inside = False  # another text stands on the last line of the terminal, which has not ended
        self.hidden = 0
        self.terminal: Any = None  # where the line is drawn while stderr goes elsewhere
        self.working = threading.Event()
        self.thread = threading.Thread()  # draws; it stays, because to begin one takes as long as a short stage
        self.said, self.silence = time.monotonic(), SILENCE[0]

    def text(self) -> str:
        *outer, inner = self.stages[1:] or self.stages
        return one_line(" > ".join([*(stage.short() for stage in outer), inner.long()]))

    def draw(self) -> None:
        """Writes the line, if it has changed, or now and then where there is no terminal."""
        with self.lock:
            if not self.working.is_set() or self.hidden or not self.stages:
                return
            text = self.text()
            if not _is_terminal():
                if time.monotonic() - self.said >= self.silence:
                    self.said, self.silence = time.monotonic(), min(2 * self.silence, SILENCE[1])
                    _write(f"{text}\n")
            elif text != self.drawn and not self.inside:
                self.drawn = text
                _write(f"{ERASE}{text[: _columns() - 1]}")

    def erase(self) -> None:
        with self.lock:
            if self.drawn:
                self.drawn = ""
                _write(ERASE)

    def run(self) -> None:
        with suppress(OSError, ValueError):  # a terminal that is gone
            while self.working.wait():
                time.sleep(TICK)
                self.draw()


class _Above:
    """A stream to the terminal: the line is erased before a text, and is drawn again when a line of text has ended."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with _line.lock:
            _line.erase()
            _line.inside = not text.endswith("\n") if text else _line.inside
            return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


_line = _Line()


@contextmanager
def stage(name: str, total: int = 0, done: int = 0) -> Iterator[Stage]:
    """Shows the work inside as a stage, within the stages around it.

    Args:
      total: how much there is to do, such as a number of steps; 0 if it is not known.
      done: how much of it is done already.
    """
    entered = Stage(name, total, done)
    _line.stages.append(entered)
    try:
        if len(_line.stages) == 1:
            _begin()
        yield entered
    finally:
        _leave(entered)


def _leave(entered: Stage) -> None:
    """Leaves a stage and those that its thread has entered within it. If no stage is left, the line ends."""
    if entered in _line.stages:
        place = _line.stages.index(entered)
        _line.stages[place:] = [stage for stage in _line.stages[place:] if stage.thread_id != entered.thread_id]
    if not _line.stages:
        end()
        for stream in ("stdout", "stderr"):
            if isinstance(above := getattr(sys, stream), _Above):
                setattr(sys, stream, above._stream)


def say(text: str) -> None:
    """Writes a line to stderr."""
    _line.said, _line.silence = time.monotonic(), SILENCE[0]
    print(text, file=sys.stderr, flush=True)


def tell(text: str, in_a_log: str) -> None:
    """Shows a text in the innermost stage, or writes a line where stderr is no terminal."""
    if _line.terminal or not _is_terminal():
        say(in_a_log)
    if _is_terminal() and _line.stages:
        _line.stages[-1].text = text


@contextmanager
def staying_on_the_terminal() -> Iterator[None]:
    """Draws the line on the terminal, if stderr is one, while the work inside sends stderr elsewhere."""
    if not _is_terminal():
        yield
        return
    with os.fdopen(os.dup(sys.stderr.fileno()), "w") as _line.terminal:
        try:
            yield
        finally:
            with _line.lock:
                _line.erase()
                _line.terminal = None


@contextmanager
def hidden() -> Iterator[None]:
    """Shows no line inside, as while the user types."""
    _line.erase()
    _line.hidden += 1
    try:
        yield
    finally:
        _line.hidden -= 1


def end() -> None:
    """Erases the line, and draws none any more, also where another thread hangs while it writes to the terminal."""
    _line.working.clear()
    if _line.lock.acquire(timeout=TICK):
        try:
            _line.erase()
        finally:
            _line.lock.release()


def _begin() -> None:
    _line.inside, _line.said, _line.silence = False, time.monotonic(), SILENCE[0]
    _line.working.set()
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if _is_open(stream) and stream.isatty() and _is_terminal():
            setattr(sys, name, _Above(stream))
    _line.draw()
    if not _line.thread.is_alive():
        _line.thread = threading.Thread(target=_line.run, name="status", daemon=True)
        _line.thread.start()


def _is_terminal() -> bool:
    if _line.terminal is not None:
        return True
    return _is_open(sys.stderr) and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _is_open(stream: Any) -> bool:
    return stream is not None and not getattr(stream, "closed", False)


def _columns() -> int:
    try:
        return os.get_terminal_size((_line.terminal or sys.stderr).fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def _write(text: str) -> None:
    stream = _line.terminal or (sys.stderr._stream if isinstance(sys.stderr, _Above) else sys.stderr)
    stream.write(text)
    stream.flush()
