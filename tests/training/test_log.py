from types import SimpleNamespace

import pytest

import fxf.training.log
from fxf.training.log import Clock, LogConfig, MetricsLog, goodput, last_wall_seconds
from fxf.training.trackers import Trackers
from small_runs import no_file_larger_than


def log_of(folder, resumed_at=0):
    return MetricsLog(folder, 10, resumed_at, LogConfig(tensorboard=False, report=False), Trackers())


def test_records_are_objects_a_line_in_which_what_json_does_not_have_is_null(tmp_path):
    log = log_of(tmp_path)
    log.record(2, {"loss": 1.5, "wall_seconds": 3.0})
    log.record(4, {"loss": float("nan"), "exact_match": 1.0}, "validation")
    assert (tmp_path / "metrics.jsonl").read_text() == (
        '{"step": 2, "loss": 1.5, "wall_seconds": 3.0}\n{"step": 4, "loss": null, "exact_match": 1.0}\n'
    )
    log.close()
    assert last_wall_seconds(tmp_path) == 3.0 and last_wall_seconds(tmp_path / "absent") == 0


@pytest.mark.parametrize(
    "damage", [b"[]\n", b"3\n", b'{"loss": 1}\n', b"\xff\x00\n", b'{"step": []}\n', b'{"step": 6, "l']
)
def test_a_log_that_goes_on_drops_what_comes_again_and_lines_that_are_no_records(damage, tmp_path):
    for name in ("metrics.jsonl", "samples.jsonl"):
        (tmp_path / name).write_bytes(b'{"step": 2, "rows": [1.5]}\n{"step": 4}\n{"step": 6}\n' + damage)
    log = log_of(tmp_path, resumed_at=4)
    log.record(6, {"loss": 2.0})
    log.close()
    kept = '{"step": 2, "rows": [1.5]}\n{"step": 4}\n'
    assert (tmp_path / "samples.jsonl").read_text() == kept
    assert (tmp_path / "metrics.jsonl").read_text() == kept + '{"step": 6, "loss": 2.0}\n'


def test_records_without_a_checkpoint_are_told_of_before_they_are_dropped(tmp_path, caplog):
    (tmp_path / "metrics.jsonl").write_text('{"step": 2, "loss": 1}\n{"step": 4, "loss": 2}\n')
    for _ in range(2):  # an empty log has nothing to lose
        log_of(tmp_path).close()
        line = f"warning: {tmp_path}: has records up to step 4 but no checkpoint; it begins again at step 0"
        assert caplog.messages == [line] and not (tmp_path / "metrics.jsonl").read_text()


def test_a_record_without_room_raises_at_once_and_so_does_closing(tmp_path):
    log = log_of(tmp_path)
    with no_file_larger_than(0):
        for write in (lambda: log.record(2, {"loss": 1.5}), log.close):
            with pytest.raises(OSError, match="File too large"):
                write()


def test_without_a_terminal_progress_is_plain_lines(tmp_path, capsys):
    log, speeds = log_of(tmp_path), {"steps_per_second": 7.25, "tokens_per_second": 12345.6}
    log.show(5, {"loss": 1.23456, **speeds, "mfu": 0.4132})
    log.print_lines("hello")
    log.close()
    line = "step 5/10  loss 1.2346  7.2 steps/s  12,346 tokens/s  MFU 41.3%  left 0:00:01"
    assert capsys.readouterr().err.splitlines() == [line, "hello"]


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
