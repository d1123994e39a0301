"""The stages of the work: drawn on a terminal, silent elsewhere."""

import io
from types import SimpleNamespace

import pytest

from fxf.base import status
from fxf.base.status import stage, tell


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """Makes stderr a terminal, and returns what is written to it."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    found = Terminal()
    monkeypatch.setattr(status, "sys", SimpleNamespace(stdout=found, stderr=found))
    return found


def test_a_stage_shows_its_name_how_much_is_done_and_a_text(terminal):
    with stage("training", 8, 2) as training:
        training(6)
        tell("loss 0.5", "in a log")
        status._progress.refresh()
        assert "training" in terminal.getvalue()
        assert "75%" in terminal.getvalue() and "loss 0.5" in terminal.getvalue()
    assert "in a log" not in terminal.getvalue()


def test_where_there_is_no_terminal_only_the_lines_of_a_log_appear(capsys):
    with stage("training", 8) as training:
        training(1)
        tell("loss 0.5", "step 1  loss 0.5")
    assert capsys.readouterr().err == "step 1  loss 0.5\n"
