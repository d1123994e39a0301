"""The records of a run, and trackers and progress lines, whose failures do not affect it."""

import logging
import sys
import time
from types import SimpleNamespace
from unittest import mock

import pytest

import fxf.training.log
from fxf.training import hang
from fxf.training.log import Clock, LogConfig, MetricsLog, goodput, last_wall_seconds
from fxf.training.trackers import TRACKERS, Trackers
from helpers import table
from small_runs import no_file_larger_than


def log_of(folder, resumed_at=0):
    return MetricsLog(folder, 10, resumed_at, LogConfig(tensorboard=False, report=False), Trackers())


def test_records_are_json_lines_with_null_for_nan_and_infinity(tmp_path):
    log = log_of(tmp_path)
    log.record(2, {"loss": 1.5, "wall_seconds": 3.0})
    log.record(4, {"loss": float("nan"), "exact_match": 1.0}, "validation")
    lines = '{"step": 2, "loss": 1.5, "wall_seconds": 3.0}\n{"step": 4, "loss": null, "exact_match": 1.0}\n'
    assert (tmp_path / "metrics.jsonl").read_text() == lines
    log.close()
    assert last_wall_seconds(tmp_path) == 3.0 and last_wall_seconds(tmp_path / "absent") == 0


@pytest.mark.parametrize("damage", [b"3\n", b'{"loss": 1}\n', b"\xff\n", b'{"step', b'{"step": 4, "test": true}\n'])
def test_a_resumed_log_drops_what_will_come_again_and_damaged_lines(damage, tmp_path):
    for name in ("metrics.jsonl", "samples.jsonl"):
        (tmp_path / name).write_bytes(b'{"step": 2, "rows": [1.5]}\n{"step": 4}\n{"step": 6}\n' + damage)
    log = log_of(tmp_path, resumed_at=4)
    log.record(6, {"loss": 2.0})
    log.close()
    kept = '{"step": 2, "rows": [1.5]}\n{"step": 4}\n'
    assert (tmp_path / "samples.jsonl").read_text() == kept
    assert (tmp_path / "metrics.jsonl").read_text() == kept + '{"step": 6, "loss": 2.0}\n'


def test_a_warning_precedes_dropping_records_without_a_checkpoint(tmp_path, caplog):
    (tmp_path / "metrics.jsonl").write_text('{"step": 2, "loss": 1}\n{"step": 4, "loss": 2}\n')
    for _ in range(2):  # an empty log has nothing to lose
        log_of(tmp_path).close()
        line = f"warning: {tmp_path}: has records up to step 4 but no checkpoint; it begins again at step 0"
        assert caplog.messages == [line] and not (tmp_path / "metrics.jsonl").read_text()


def test_a_record_on_a_full_disk_raises_at_once_and_so_does_closing(tmp_path):
    log = log_of(tmp_path)
    for write in (lambda: log.record(2, {"loss": 1.5}), log.close):
        with no_file_larger_than(0), pytest.raises(OSError, match="File too large"):
            write()


NOTED = {KeyboardInterrupt(): "KeyboardInterrupt", KeyError("a\nb"): "error: KeyError: 'a b'"}


@pytest.mark.parametrize("error", NOTED)
def test_the_error_that_ends_training_is_noted_with_its_type_and_ctrl_c_as_a_stop(error, tmp_path, monkeypatch):
    monkeypatch.setattr(fxf.training.log.report, "write", None)  # the page is off
    with pytest.raises(type(error)), log_of(tmp_path):
        raise error
    assert (tmp_path / "ended.txt").read_text() == f"{NOTED[error]}\n"


def test_without_a_terminal_progress_is_plain_lines(tmp_path, capsys):
    log, speeds = log_of(tmp_path), {"steps_per_second": 7.25, "tokens_per_second": 12345.6}
    log.show(5, {"loss": 1.23456, **speeds, "mfu": 0.4132, "term/pull": 0.5, "figure/reward": 0.2})
    log.print_lines("hello")
    log.close()
    line = "step 5/10  loss 1.2346  term/pull 0.5000  7.2 steps/s  12,346 tokens/s  MFU 41.3%  left 0:00:01"
    assert capsys.readouterr().err.splitlines() == [line, "hello"]


def test_a_clock_counts_each_second_for_one_purpose_and_adds_earlier_parts(monkeypatch):
    now = 5.0
    monkeypatch.setattr(fxf.training.log, "time", SimpleNamespace(perf_counter=lambda: now))
    clock = Clock(now)
    clock.add_earlier({"train": 100.0, "compile": 10.0, "evaluate": 0.0, "wall": 200.0})
    with clock.measure("train"):
        now += 0.5
        with clock.measure("compile"):
            now += 0.25
        now += 1
    clock.wait(0.25)
    now += 2
    assert goodput(clock.seconds()) == 101.25 / 203.75
    assert clock.seconds() == {"train": 101.5, "compile": 10.25, "evaluate": 0, "data": 0.25, "wall": 203.75}


@pytest.fixture
def received(monkeypatch):
    """A tracker named recording, and the list of what it receives."""

    class Recording:
        def __init__(self, folder, resumed_at):
            found.append(("made", folder.name, resumed_at))

        def __getattr__(self, name):
            return lambda *arguments: found.append((name, *arguments))

    found = []
    monkeypatch.setitem(TRACKERS, "recording", Recording)
    return found


def test_a_tracker_receives_config_metrics_by_group_and_the_step_of_resuming(received, tmp_path):
    figures = {"loss": 0.5, "steps_per_second": 7, "mfu": 0.25, "device_bytes": 3, "samples": ["no number"]}
    records = []
    with Trackers(lambda step, values: records.append((step, sorted(values)))) as trackers:
        trackers.open(["recording", "recording"], tmp_path, 3)
        trackers.config({"seed": 0})
        trackers.scalars(4, "train", figures)
        trackers.scalars(4, "validation", {"exact_match": 1.0})
        trackers.scalars(6, "test", {"test_loss": 0.25})
    assert received == [
        ("made", tmp_path.name, 3),
        ("config", {"seed": 0}),
        ("scalars", 4, {"train/loss": 0.5, "speed/steps_per_second": 7, "speed/mfu": 0.25, "memory/device_bytes": 3}),
        ("scalars", 4, {"validation/exact_match": 1.0}),
        ("scalars", 6, {"test/loss": 0.25}),
        ("close",),
    ]
    assert records == [(4, ["device_bytes", "loss", "mfu", "steps_per_second"]), (4, ["exact_match"])]


@pytest.mark.parametrize("at", ["__init__", "scalars", "close"])
def test_a_tracker_that_fails_causes_a_warning_and_the_run_continues(at, received, monkeypatch, tmp_path, caplog):
    failing = mock.Mock(side_effect=RuntimeError("no\nnetwork"))
    monkeypatch.setattr(TRACKERS["recording"], at, lambda *_: failing(), raising=False)
    with Trackers() as trackers:
        trackers.open(["recording"], tmp_path, 0)
        for step in (1, 2):
            trackers.scalars(step, "train", {"loss": 0.5})
    assert caplog.messages == ["warning: tracker recording failed and gets no more records: no network"]


def test_an_exception_of_the_callback_reaches_the_caller():
    with pytest.raises(KeyError), Trackers(lambda step, figures: figures["absent"]) as trackers:
        trackers.scalars(1, "train", {"loss": 0.5})


def events(folder):
    """Yields the events of a folder of TensorBoard, in order."""
    from tensorboardX.proto import event_pb2

    for path in sorted((folder / "tensorboard").iterdir()):
        data = path.read_bytes()
        while data:  # a record: length (8 bytes), its checksum (4), the event, its checksum (4)
            length = int.from_bytes(data[:8], "little")
            yield event_pb2.Event.FromString(data[12 : 12 + length])
            data = data[16 + length :]


def test_tensorboard_has_config_curves_and_a_session_for_each_part_of_a_run(tmp_path):
    for resumed_at in (0, 3):
        with Trackers() as trackers:
            trackers.open(["tensorboard"], tmp_path, resumed_at)
            assert sys.modules.get("torch", sys) is not None  # the user's code may import it
            trackers.config({"seed": 0})
            trackers.scalars(resumed_at + 1, "train", {"loss": 0.25, "note": "no number"})
    found = [event for event in events(tmp_path) if event.HasField("summary")]
    tags = [(event.step, event.summary.value[0].tag.split("/text_summary")[0]) for event in found]
    assert tags == [(0, "config"), (1, "train/loss"), (0, "config"), (4, "train/loss")]
    assert found[1].summary.value[0].simple_value == 0.25
    assert [event.step for event in events(tmp_path) if event.HasField("session_log")] == [1, 4]


def test_tensorboard_on_a_full_disk_is_given_up_with_one_warning(tmp_path, caplog):
    with Trackers() as trackers:
        trackers.open(["tensorboard"], tmp_path, 0)
        with no_file_larger_than(0):
            for step in (1, 2):
                trackers.scalars(step, "train", {"loss": 0.5})
    (warning,) = caplog.records
    assert "tracker tensorboard failed and gets no more records: " in warning.getMessage()


@pytest.mark.parametrize(("case", "warnings"), table("slow steps"))
def test_a_slow_step_is_reported_once_with_its_stack_and_compiling_is_not(case, warnings, caplog, monkeypatch):
    monkeypatch.setattr(hang, "LEAST", 0.05)  # so that the thread does not notice its own start
    if case["compiles"]:
        monkeypatch.setattr(hang, "COMPILER", __file__[1:])
    with hang.watched(7, case["usual"], case["factor"]):
        limit = time.monotonic() + 30
        while warnings != "0" and not caplog.text and time.monotonic() < limit:
            time.sleep(0.005)
        time.sleep(0.1)
    assert len(caplog.records) == int(warnings)
    if caplog.records:
        text = caplog.records[0].getMessage()
        assert text.startswith("warning: step 7: no step has ended for 0 s, where 0.002 s are usual; it is in ")
        assert f"({__file__}:" in text and caplog.records[0].levelno == logging.WARNING
