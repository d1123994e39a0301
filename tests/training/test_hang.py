"""A line about steps that do not end."""

import logging
import time

import pytest

from fxf.training import hang


@pytest.mark.parametrize(
    ("factor", "usual", "compiles", "expected"),
    [
        (10.0, 0.002, False, 1),
        (10.0, 0.002, True, 0),
        (0.0, 0.002, False, 0),
        (10.0, 0.0, False, 0),
        (1e4, 1.0, False, 0),
    ],
)
def test_steps_that_take_many_times_the_usual_are_said_once_with_where_they_stand_but_not_compiling(
    factor, usual, compiles, expected, caplog, monkeypatch
):
    monkeypatch.setattr(hang, "LEAST", 0.0)
    if compiles:
        monkeypatch.setattr(hang, "COMPILER", __file__)
    with hang.watched(7, usual, factor):
        limit = time.monotonic() + 30
        while expected and not caplog.text and time.monotonic() < limit:
            time.sleep(0.005)
        time.sleep(0.1)
    assert len(caplog.records) == expected
    if expected:
        text = caplog.records[0].getMessage()
        assert text.startswith("warning: step 7: no step has ended for 0 s, where 0.002 s are usual; it is in ")
        assert f"({__file__}:" in text and caplog.records[0].levelno == logging.WARNING
