"""Standard streams whose reader goes away or whose disk is full: the computation goes on, and the end tells."""

import errno
import io
import os
import sys

import pytest

from fxf.machine import streams
from fxf.machine.streams import Tolerant
from fxf.runs import cli


@pytest.fixture
def main(monkeypatch):
    """Returns `main(stdout, lines)`: the exit code of a script that prints lines, and what it told at its end."""

    def run(stdout, lines):
        done, told = [], []

        def script(_):
            for i in range(lines):
                print("x" * 999, flush=True)
                done.append(i)

        monkeypatch.setattr(sys, "argv", ["script.py"])
        monkeypatch.setattr(sys, "stdout", stdout)
        monkeypatch.setattr(sys, "stderr", sys.stderr)
        monkeypatch.setattr(cli.signals, "print_last_line", told.append)
        code = 0
        try:
            cli.run(script)
        except SystemExit as end:
            code = end.code
        assert len(done) == lines  # the script itself was not disturbed
        return code, told

    return run


def test_a_reader_that_goes_away_ends_nothing_and_is_told_nothing(main):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        assert main(pipe, 3) == (141, [])


def test_a_full_disk_under_stdout_is_told_at_the_end(main):
    with open("/dev/full", "w") as full:
        code, told = main(full, 3)
    assert code == 2
    assert told == [
        f"error: standard output: {os.strerror(errno.ENOSPC)}; the printed text is lost, the run folder is whole"
    ]


def test_a_stdout_that_was_closed_is_told_at_the_end(main):
    code, told = main(None, 3)
    assert (code, told[0].split(";")[0]) == (2, f"error: standard output: {os.strerror(errno.EBADF)}")


def test_a_stdout_that_takes_all_is_told_nothing_of(main):
    with io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True) as out:
        assert main(out, 2) == (0, [])
        assert len(out.buffer.getvalue()) == 2 * 1000


def test_characters_that_an_encoding_has_not_are_escaped(monkeypatch):
    with io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True) as out:
        monkeypatch.setattr(sys, "stdout", out)
        streams.tolerate()
        print("é→")
        assert out.buffer.getvalue() == b"\\xe9\\u2192\n"


def test_a_stderr_that_is_gone_drops_what_it_gets():
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        stream = Tolerant(pipe)
        for _ in range(3):
            print("progress", file=stream, flush=True)
        assert stream.failure.errno == errno.EPIPE


@pytest.mark.parametrize(
    ("error", "parts"),
    [
        (MemoryError("Unable to allocate 7 TiB"), ["out of memory: Unable to allocate 7 TiB", "train.batch_size"]),
        (type("JaxRuntimeError", (RuntimeError,), {})("RESOURCE_EXHAUSTED: 7 bytes"), ["out of memory: RESOURCE"]),
        (type("PanicException", (BaseException,), {})("called `unwrap`\non None"), ["a library failed: called"]),
    ],
)
def test_what_is_no_mistake_of_this_code_is_one_line(error, parts):
    for part in parts:
        assert part in cli.why_not_ours(error)


def test_a_mistake_of_this_code_stays_a_traceback():
    assert cli.why_not_ours(RuntimeError("RESOURCE_EXHAUSTED")) == cli.why_not_ours(ValueError("x")) == ""
