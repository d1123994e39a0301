"""The line that says what a process does: on a terminal it is written again and again, in a log it follows silence."""

import os
import threading
import time
from types import SimpleNamespace

import pytest

from fxf.machine import status
from fxf.machine.status import Stage, hidden, say, stage, tell


class Terminal:
    """A terminal of one line: what is written to it, and what stands on its last line."""

    def __init__(self):
        self.written, self.shown = "", ""

    def write(self, text):
        self.written += text
        self.shown = (self.shown + text).rsplit("\n", 1)[-1].rsplit(status.ERASE, 1)[-1]
        return len(text)

    def fileno(self):
        raise OSError

    def flush(self):
        pass

    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def line(monkeypatch):
    """Gives each test a line of its own, which the thread of an earlier test does not draw."""
    monkeypatch.setattr(status, "_line", status._Line())


@pytest.fixture
def terminal(monkeypatch):
    """Makes both streams a terminal, on which a line is drawn only when a test asks for it."""
    found = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(status, "TICK", 99.0)
    monkeypatch.setattr(status, "sys", SimpleNamespace(stdout=found, stderr=found))
    return found


@pytest.fixture
def clock(monkeypatch):
    """Returns a list with the time, which stands still."""
    now = [100.0]
    monkeypatch.setattr(status.time, "monotonic", lambda: now[0])
    return now


def draw():
    status._line.draw()


def test_a_stage_shows_its_name_at_once_and_leaves_nothing_behind(terminal, clock):
    with stage("reading"):
        assert terminal.shown == "reading  0:00:00"
        clock[0] += 61
        draw()
        assert terminal.shown == "reading  0:01:01"
    assert terminal.shown == ""
    assert "\n" not in terminal.written


def test_the_line_names_the_stages_within_the_outermost_one(terminal, clock):
    with stage("fxf train"), stage("training", 8, 2) as training:
        training.advance(3)
        with stage("compiling"):
            draw()
            assert terminal.shown == "training 62% > compiling  0:00:00"


def test_the_time_left_follows_from_the_steps_after_the_first_ones(clock):
    training = Stage("training", 10, 0)
    clock[0] += 50  # compiling
    training.advance(1)
    assert training.long() == "training 10%  0:00:50"
    clock[0] += 4
    training.advance(2)
    training.text = "loss 0.5"
    assert training.long() == "training 30%  0:00:54  left 0:00:14  loss 0.5"


def test_printed_text_stands_above_the_line(terminal):
    with stage("training"):
        print("a result", file=status.sys.stdout)
        assert terminal.shown == ""
        draw()
        assert terminal.shown.startswith("training")
        status.sys.stderr.write("half a")
        draw()
        assert terminal.shown == "half a"
        print(" line", file=status.sys.stdout)
        draw()
        assert terminal.shown.startswith("training")
    assert terminal.written.replace(status.ERASE, "").count("\n") == 2
    assert status.sys.stdout is terminal and status.sys.stderr is terminal


def test_no_line_is_drawn_while_the_user_types(terminal):
    with stage("reading"), hidden():
        draw()
        assert terminal.shown == ""


def test_no_line_is_drawn_after_the_last_words_of_a_process(terminal):
    with stage("reading"):
        status.end()
        draw()
        assert terminal.shown == ""


def test_the_line_ends_for_an_error_too_with_all_stages_inside(terminal):
    with pytest.raises(KeyError), stage("outer"):
        status._line.stages.append(Stage("left open", 0, 0))
        raise KeyError
    assert terminal.shown == "" and not status._line.stages


def test_a_record_is_a_part_of_the_line_on_a_terminal_and_a_line_elsewhere(terminal, capsys, monkeypatch):
    with stage("training", 10):
        tell("loss 0.5", "loss 0.5  left 0:00:03")
        draw()
        assert terminal.shown.endswith("loss 0.5")
    assert "\n" not in terminal.written
    monkeypatch.undo()
    tell("loss 0.5", "loss 0.5  left 0:00:03")
    assert capsys.readouterr() == ("", "loss 0.5  left 0:00:03\n")


def test_a_long_line_is_cut_to_the_terminal_and_shows_no_control_characters(terminal):
    with stage("reading a\nfile \x1b" + 99 * "x"):
        assert len(terminal.shown) == 79
        assert terminal.shown.startswith(r"reading a\nfile \x1bxxx")


def test_a_log_gets_a_line_after_silence_and_then_less_and_less_often(capsys, clock, monkeypatch):
    monkeypatch.setattr(status, "TICK", 99.0)
    said = []
    with stage("compiling"):
        for second in range(1, 400):
            clock[0] += 1
            draw()
            if text := capsys.readouterr().err:
                said.append((second, text))
        say("hello")
        clock[0] += 29
        draw()
    assert said == [(n, f"compiling  0:{n // 60:02}:{n % 60:02}\n") for n in (30, 90, 210, 330)]
    assert capsys.readouterr().err == "hello\n"


def test_a_quick_process_says_nothing_in_a_log(capsys):
    with stage("reading"):
        pass
    assert capsys.readouterr() == ("", "")


def test_one_thread_draws_the_lines_of_all_stages_and_nothing_between_them(terminal, monkeypatch):
    monkeypatch.setattr(status, "TICK", 0.001)
    for inner in ("first", "second"):
        with stage("outer"), stage(inner):
            limit = time.monotonic() + 20
            while not terminal.shown.startswith(inner) and time.monotonic() < limit:
                time.sleep(0.001)
            assert terminal.shown.startswith(inner)
        n_written = len(terminal.written)
        time.sleep(0.05)
        assert (terminal.shown, len(terminal.written)) == ("", n_written)
    assert status._line.thread.name == "status" and status._line.thread.is_alive()


def test_a_thread_draws_again_after_its_terminal_was_gone(terminal, monkeypatch):
    monkeypatch.setattr(status, "TICK", 0.001)
    draws = status._Line.draw
    with stage("first"):
        first = status._line.thread
        monkeypatch.setattr(status._Line, "draw", lambda line: terminal.fileno())  # raises an OSError
        first.join(60)
        assert not first.is_alive()
        monkeypatch.setattr(status._Line, "draw", draws)
    with stage("second"):
        assert status._line.thread.is_alive()


def test_the_line_stays_on_the_terminal_while_stderr_goes_to_a_log(monkeypatch, clock, tmp_path):
    reader, device = os.openpty()
    with os.fdopen(device, "w") as terminal, (tmp_path / "log").open("w") as log:
        streams = SimpleNamespace(stdout=terminal, stderr=terminal)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr(status, "TICK", 99.0)
        monkeypatch.setattr(status, "sys", streams)
        with stage("fxf try"):
            before = streams.stderr
            with status.staying_on_the_terminal(), stage("training"):
                streams.stderr = log
                tell("loss 2", "step 1  loss 2")
                draw()
                streams.stderr = before
            say("pair 1")
        seen = ""
        while "pair 1" not in seen:  # a read returns what the terminal has so far
            seen += os.read(reader, 4096).decode()
    os.close(reader)
    assert "training  0:00:00  loss 2" in seen
    assert seen.index("loss 2") < seen.index("pair 1")
    assert (tmp_path / "log").read_text() == "step 1  loss 2\n"


def test_the_stages_of_a_thread_stay_when_another_leaves_its_own(terminal):
    entered, left = threading.Event(), threading.Event()

    def other():
        with stage("other"):
            entered.set()
            left.wait(60)
            draw()
            shown.append(terminal.shown)

    shown, thread = [], threading.Thread(target=other)
    with stage("outer"), stage("inner"):
        thread.start()
        assert entered.wait(60)
    left.set()
    thread.join(60)
    assert shown == ["other  0:00:00"]
    assert terminal.shown == "" and not status._line.stages


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_closed_stream_gets_no_line_and_keeps_nothing_from_its_work(stream, monkeypatch, tmp_path):
    with (tmp_path / "closed").open("w") as closed:
        pass
    monkeypatch.setattr(status.sys, stream, closed)
    with stage("reading"):
        draw()
    assert not status._line.stages and not status._line.working.is_set()


def test_a_stage_that_cannot_show_itself_is_left(terminal, monkeypatch):
    def refuse(text):
        raise BlockingIOError

    monkeypatch.setattr(terminal, "write", refuse)
    with pytest.raises(BlockingIOError), stage("reading"):
        pass
    assert not status._line.stages and not status._line.working.is_set()
