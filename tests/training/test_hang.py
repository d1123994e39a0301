"""A line about steps that do not end."""

import logging
import subprocess
import sys
import time

import pytest

from fxf.training import hang
from fxf.training.log import LogConfig


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(hang, "LEAST", 0.0)


def waits(seconds, caplog):
    """Waits inside of a watch, as long as a device may, or until there is a line."""
    limit = time.monotonic() + seconds
    while not caplog.text and time.monotonic() < limit:
        time.sleep(0.005)


@pytest.mark.parametrize(
    ("factor", "usual", "lines"), [(10.0, 0.002, 1), (0.0, 0.002, 0), (10.0, 0.0, 0), (1e4, 1.0, 0)]
)
def test_steps_that_take_many_times_the_usual_are_said_once_with_where_they_stand(factor, usual, lines, caplog):
    with hang.watched(7, usual, LogConfig(hang=factor)):
        waits(30 if lines else 0.1, caplog)
        time.sleep(0.1)
    assert len(caplog.records) == lines
    if lines:
        text = caplog.records[0].getMessage()
        assert text.startswith("warning: step 7: no step has ended for 0 s, where 0.002 s are usual; it is in ")
        assert f"({__file__}:" in text and caplog.records[0].levelno == logging.WARNING


def test_steps_that_compile_do_not_hang(monkeypatch, caplog):
    monkeypatch.setattr(hang, "COMPILER", __file__)
    with hang.watched(7, 0.001, LogConfig(hang=10.0)):
        time.sleep(0.1)
    assert not caplog.records


def test_with_its_key_a_process_that_hangs_ends_with_the_code_after_which_a_job_starts_again():
    program = """
from fxf.training import hang
from fxf.training.log import LogConfig
hang.LEAST = 0.0
with hang.watched(7, 0.001, LogConfig(hang_ends=True)):
    import time; time.sleep(60)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 75
    assert done.stderr.endswith("; the process ends with exit code 75\n") and done.stderr.count("\n") == 1
