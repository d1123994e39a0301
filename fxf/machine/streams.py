"""Standard streams that outlive their readers: printed text may be lost, computed results are not."""

import contextlib
import errno
import io
import os
import sys
from typing import Any

from fxf.errors import EXIT_USER_ERROR
from fxf.machine import signals

EXIT_BROKEN_PIPE = 128 + 13  # a shell's code for a process that SIGPIPE ended


class Tolerant:
    """A text stream that, after a failed write, keeps the failure and drops all further text."""

    def __init__(self, stream: Any, failure: OSError | None = None) -> None:
        self._stream, self.failure = stream, failure

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except OSError as error:
            self._drop(error)
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._drop(error)

    def _drop(self, error: OSError) -> None:
        """Keeps the first failure, and sends the stream to the null device, which takes the text still buffered."""
        self.failure = self.failure or error
        with contextlib.suppress(OSError), open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), self._stream.fileno())
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def occupy() -> None:
    """Opens the standard descriptors that are closed; else another file would get their numbers."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


def tolerate() -> None:
    """Makes stdout and stderr tolerant, and escapes characters that their encoding lacks."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if hasattr(stream, "failure"):  # it is tolerant already
            continue
        if stream is None:  # it was closed when the process started
            closed = OSError(errno.EBADF, os.strerror(errno.EBADF))
            setattr(sys, name, Tolerant(open(os.devnull, "w"), closed))  # noqa: SIM115  open until the process ends
            continue
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
        setattr(sys, name, Tolerant(stream))


def lost_output() -> OSError | None:
    """Returns the error by which printed text was lost from stdout, or None."""
    sys.stdout.flush()
    return getattr(sys.stdout, "failure", None)


def end_if_lost() -> None:
    """Ends the process if printed text was lost: with exit code 141 if the reader has gone, else with one line."""
    if not (lost := lost_output()):
        return
    if isinstance(lost, BrokenPipeError):
        sys.exit(EXIT_BROKEN_PIPE)
    signals.print_last_line(
        f"error: standard output: {lost.strerror}; the printed text is lost, the run folder is whole"
    )
    sys.exit(EXIT_USER_ERROR)
