import json
from types import SimpleNamespace

import pytest

import fxf.training.log
from fxf.base.errors import UserError
from fxf.training.log import Clock, LogConfig, MetricsLog, goodput
from fxf.training.trackers import Trackers
from small_runs import no_file_larger_than


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def log_of(folder, resumed_at=0):
    return MetricsLog(folder, 10, resumed_at, LogConfig(tensorboard=False, report=False), Trackers())


def test_records_are_objects_a_line(tmp_path):
    log = log_of(tmp_path)
    log.record(2, {"loss": 1.5})
    log.record(4, {"loss": 0.5, "exact_match": 1.0})
    assert lines(tmp_path) == [{"step": 2, "loss": 1.5}, {"step": 4, "loss": 0.5, "exact_match": 1.0}]
    log.close()


def test_records_without_a_checkpoint_are_told_of_before_they_are_dropped(tmp_path, caplog):
    (tmp_path / "metrics.jsonl").write_text('{"step": 2, "loss": 1}\n{"step": 4, "loss": 2}\n')
    log_of(tmp_path).close()
    line = f"warning: {tmp_path}: has records up to step 4 but no checkpoint; it begins again at step 0"
    assert caplog.messages == [line] and not lines(tmp_path)
    log_of(tmp_path).close()  # an empty log has nothing to lose
    assert caplog.messages == [line]


def test_a_value_that_json_does_not_have_is_null(tmp_path):
    log = log_of(tmp_path)
    log.record(2, {"loss": float("nan"), "exact_match": 1.0}, "validation")
    log.close()
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 2, "loss": null, "exact_match": 1.0}\n'


def test_a_resumed_log_drops_what_comes_again_and_a_line_cut_short(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 2, "loss": 1}\n{"step": 4, "loss": 2}\n{"step": 6, "lo')
    log = log_of(tmp_path, resumed_at=2)
    log.record(4, {"loss": 2.0})
    log.close()
    assert lines(tmp_path) == [{"step": 2, "loss": 1}, {"step": 4, "loss": 2.0}]


@pytest.mark.parametrize(
    "damage", [b"[]\n", b"3\n", b'{"loss": 1}\n', b"\xff\x00\n", b"[" * 9999 + b"\n", b'{"step": []}\n']
)
def test_lines_that_are_no_records_are_left_out(damage, tmp_path):
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 2, "loss": 1}\n' + damage + b'{"step": 4, "loss": 2}\n')
    log_of(tmp_path, resumed_at=4).close()
    assert [line["step"] for line in lines(tmp_path)] == [2, 4]


def test_records_that_cannot_be_read_are_one_line(tmp_path):
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(UserError, match=r"metrics\.jsonl: expected a file, got a folder"):
        log_of(tmp_path)


def test_a_record_without_room_raises_at_once_and_so_does_closing(tmp_path):
    log = log_of(tmp_path)
    with no_file_larger_than(0):
        for write in (lambda: log.record(2, {"loss": 1.5}), log.close):
            with pytest.raises(OSError, match="File too large"):
                write()


def test_without_a_terminal_progress_is_plain_lines(tmp_path, capsys):
    log = log_of(tmp_path)
    log.show(5, {"loss": 1.23456, "steps_per_second": 7.25, "tokens_per_second": 12345.6})
    log.print_lines("hello")
    log.close()
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("step 5/10  loss 1.2346  7.2 steps/s  12,346 tokens/s  left 0:00:0")
    assert second == "hello"


def test_a_line_shows_the_utilization_where_it_is_known(tmp_path, capsys):
    log = log_of(tmp_path)
    log.show(5, {"loss": 1.0, "steps_per_second": 7.25, "tokens_per_second": 12345.6, "mfu": 0.4132})
    log.close()
    assert "12,346 tokens/s  MFU 41.3%  left 0:00:0" in capsys.readouterr().err


def test_a_clock_counts_each_second_for_one_purpose_and_adds_what_came_before(monkeypatch):
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
