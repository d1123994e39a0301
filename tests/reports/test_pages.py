"""The page of a run, and the server of live pages without a browser, from run folders written here."""

import fcntl
import json
import math
import re
import threading
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection
from http.server import ThreadingHTTPServer

import pytest

from fxf.base.errors import UserError
from fxf.reports import live, report, run_files
from fxf.reports.page import MOST_POINTS, page, thinned
from fxf.reports.report import contents
from fxf.reports.run_files import read
from fxf.training.log import LogConfig, MetricsLog
from fxf.training.trackers import Trackers
from helpers import table
from small_runs import tiny_config

BAD = "<script>alert('x')</script> & \u2028 </textarea>"
RECORDS = [
    {"step": 3, "loss": 2.5, "learning_rate": 0.5, "exact_match": 0.25},
    {"step": 6, "loss": 0.125, "learning_rate": float("nan")},
]


def make_run(folder, finished=True, records=RECORDS, result=None, record=None, **sections):
    """Writes a run folder; `result` and `record` are further content of result.json and config.json."""
    folder.mkdir(parents=True)
    overrides = {"start.weights": "blocks/*", "train.steps": 6}
    origin = {"config_file": BAD, "overrides": overrides, "git_commit": "12ab", "versions": {"jax": "1"}}
    (folder / "config.json").write_text(json.dumps({"config": tiny_config(**sections), **origin, **(record or {})}))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records) + '{"step": 9, "lo')
    if finished:
        known = {"task": "reversal", "seed": 0, "exact_match": 0.5, "train_loss": records[-1]["loss"]}
        (folder / "result.json").write_text(json.dumps(known | (result or {})))
    return folder


def data_of(text):
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    return json.loads(found)


def test_the_page_has_the_metrics_of_the_records_and_nan_leaves_a_gap(tmp_path):
    more = {"record": {"better": {"mine": "lower", "odd": ""}}, "result": {"mine": 3, "other": 4, "odd": 5}}
    shown = data_of(report.write(make_run(tmp_path / "run", **more)).read_text())
    curves = {chart["name"]: chart["lines"][0]["points"] for chart in shown["charts"]}
    assert curves == {"loss": [[3, 2.5], [6, 0.125]], "exact_match": [[3, 0.25]], "learning_rate": [[3, 0.5]]}
    assert (shown["state"], shown["said"]) == ("finished", "step 6 of 6")
    assert [tile["value"] for tile in shown["headline"]] == [0.5, 0.125, 3, 5, 0]
    assert ["train.steps", 6, True] in shown["config"] and ["seed", 0, False] in shown["config"]
    assert shown["command"].endswith("--config.train.steps=6 --workdir=runs/again")


def test_a_long_curve_keeps_its_ends_and_the_extremes_of_each_stretch_in_order():
    curve = [(step, math.sin(step)) for step in range(3001)]
    kept = thinned(curve)
    assert 200 < len(kept) <= MOST_POINTS and kept == sorted(kept) and (kept[0], kept[-1]) == ([0, 0.0], [*curve[-1]])
    stretches = [[value for step, value in kept if start <= step < start + 60] for start in range(0, 3000, 60)]
    assert all(max(values) > 0.99 and min(values) < -0.99 for values in stretches)
    assert thinned(curve[:400]) == [[*point] for point in curve[:400]]


def test_a_step_has_the_tokens_and_seconds_of_training_so_far(tmp_path):
    def record(step, steps, tokens):
        return {"step": step, "loss": 1.0, "steps_per_second": steps, "tokens_per_second": tokens}

    records = [record(10, 2.0, 8.0), record(16, 3.0, 30.0), {"step": 17, "exact_match": 0.5}, record(18, 0.5, 1.5)]
    shown = data_of(report.write(make_run(tmp_path / "run", records=records, finished=False)).read_text())["axes"]
    assert shown["seconds"] == [[0, 0.0], [10, 5.0], [16, 5.0 + 2.0], [18, 7.0 + 4.0]]
    assert shown["tokens"] == [[0, 0.0], [10, 40.0], [16, 40.0 + 60.0], [18, 100.0 + 6.0]]
    assert data_of(report.write(make_run(tmp_path / "other")).read_text())["axes"] == {}


@pytest.mark.parametrize(("more", "expected"), table("metric by which a run is judged"))
def test_a_run_is_judged_by_the_metric_of_its_checkpoint_else_by_its_first_score(more, expected, tmp_path):
    name, value = report.main_figure(run_files.read(make_run(tmp_path / "run", **more)))
    assert f"{name} {value}" == expected


def test_texts_are_data_and_no_markup(tmp_path, monkeypatch):
    folder = make_run(tmp_path / "<script>name<", optimizer={"name": BAD})
    sample = {"step": 6, "test": True, "rows": [[BAD, BAD, "x"], ["a", "b", "c", True]]}
    (folder / "samples.jsonl").write_text(json.dumps(sample) + "\n")
    monkeypatch.chdir(folder)
    text = report.write(folder.relative_to(folder)).read_text()
    assert text.count("<script") == 2 and "alert" in text and "\u2028" not in text
    shown = data_of(text)
    assert shown["samples"] == [sample] and ["optimizer.name", BAD, False] in shown["config"]
    assert "<title>&lt;script&gt;name&lt;: finished</title>" in text


def test_of_many_samples_some_are_shown_in_order_with_the_last(tmp_path):
    folder, n = make_run(tmp_path / "run"), 3 * report.MOST_STEPS
    lines = [json.dumps({"step": step, "rows": [["p", "e", "a" * 5000]]}) for step in range(1, n)]
    (folder / "samples.jsonl").write_text("\n".join(lines))
    shown = data_of(report.write(folder).read_text())["samples"]
    steps = [sample["step"] for sample in shown]
    assert steps == sorted(steps) and steps[-1] == n - 1 and report.MOST_STEPS / 2 < len(steps) <= report.MOST_STEPS
    assert len(shown[0]["rows"][0][2]) < 2100


def test_damaged_lines_and_files_are_left_out_of_the_page(tmp_path):
    plain = data_of(report.write(make_run(tmp_path / "run")).read_text())
    damaged = {"samples.jsonl": '{"step": 6, "ro', "metrics.jsonl": '[1]\n{"step": "6"}', "inside.json": "[1"}
    for name, text in damaged.items():
        with (tmp_path / "run" / name).open("a") as file:
            file.write(f"\n{text}")
    assert data_of(report.write(tmp_path / "run").read_text()) == plain


@pytest.mark.parametrize(("of", "state"), table("states of a run"))
def test_a_run_is_running_while_its_lock_is_held_and_then_has_the_status_of_its_end(of, state, tmp_path):
    folder, why = make_run(tmp_path / "run", finished=False), of["why"]
    assert run_files.read(folder)[-2:] == ("stopped", "step 6 of 6")
    (folder / "ended.txt").write_text(f"{why}\n")
    assert run_files.read(folder)[-2:] == (state, f"step 6 of 6; {why.removeprefix('error: ')}")
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert run_files.read(folder).state == "running"


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), None])
def test_a_metric_without_a_value_is_named_on_the_page_of_a_run(value, tmp_path):
    shown = data_of(report.write(make_run(tmp_path / "run", result={"exact_match": value})).read_text())
    assert [tile["value"] for tile in shown["headline"]] == ["no value", 0.125, 0]
    assert ["exact_match", "no value"] in shown["result"]


def test_the_log_records_why_training_ended_and_writes_the_page(tmp_path):
    folder = make_run(tmp_path / "run", finished=False, records=[{"step": 3, "loss": 1.0}])
    with pytest.raises(UserError), MetricsLog(folder, 6, 3, LogConfig(tensorboard=False), Trackers()) as log:
        assert log.without_samples(4, {"a": 1.0, "samples": [("p", None, "q")], "answers": []}) == {"a": 1.0}
        log.record(4, {"loss": 0.5})
        raise UserError("step 5: the loss is nan")
    shown = data_of((folder / "report.html").read_text())
    assert shown["charts"][0]["lines"][0]["points"] == [[3, 1.0], [4, 0.5]]
    assert (shown["state"], shown["said"]) == ("diverged", "step 4 of 6; step 5: the loss is nan")
    assert shown["samples"] == [{"step": 4, "test": False, "rows": [["p", None, "q"]]}]
    without_page = LogConfig(tensorboard=False, report=False)
    MetricsLog(folder, 6, 3, without_page, Trackers()).close()  # resumes before the samples
    assert run_files.read(folder).state == "stopped" and run_files.read(folder).samples == []


@contextmanager
def serving(folder):
    """Serves the runs in a folder as the command does."""
    server = ThreadingHTTPServer((live.HOST, 0), partial(live.Handler, folder))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def asked(tmp_path):
    """Returns a function that requests a path from the server of two runs; it returns status, headers and text."""
    make_run(tmp_path / "runs/a b", seed=3)
    make_run(tmp_path / "runs/sweep/1", finished=False)
    make_run(tmp_path / "secret")
    with serving(tmp_path / "runs") as server:

        def ask(path, **headers):
            connection = HTTPConnection(live.HOST, server.server_port)
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            found = answer.status, dict(answer.getheaders()), answer.read().decode()
            connection.close()
            return found

        yield ask


def test_a_run_is_served_by_its_name_with_the_data_of_its_page(asked, tmp_path):
    expected = {**contents(read(tmp_path / "runs/a b")), "up": "/"}
    for path in ("/a%20b/", "/a%20b"):
        status, headers, text = asked(path)
        assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert data_of(text) == expected and "connect-src 'self'" in text
    assert "connect-src" not in page("t", {}, ["report.js"])
    assert json.loads(asked("/a%20b/data.json")[2]) == expected


def test_all_runs_are_listed_with_their_progress(asked, tmp_path):
    for name, text in {"broken": "{", "a b/huggingface": '{"model_type": "gpt2"}'}.items():
        (tmp_path / "runs" / name).mkdir()
        (tmp_path / "runs" / name / "config.json").write_text(text)

    def rows():
        found = sorted(json.loads(asked("/data.json")[2])["runs"], key=lambda row: row["name"])
        shown = ("name", "link", "state", "step", "figure", "value", "model", "task")
        return [[row[name] for name in shown] for row in found]

    kind = ["transformer_lm", "reversal"]
    stopped = ["sweep/1", "/sweep/1/", "stopped", 6, "exact_match", 0.25, *kind]
    assert rows() == [["a b", "/a%20b/", "finished", 6, "exact_match", 0.5, *kind], stopped]
    (tmp_path / "runs/a b/result.json").write_text('{"exact_match": 1.0}')
    assert rows() == [["a b", "/a%20b/", "finished", 6, "exact_match", 1.0, *kind], stopped]


@pytest.mark.parametrize(
    "path", ["/other/", "/../secret/", "/%2e%2e/secret/data.json", "/sweep/", "/a%20b/config.json", f"/{BAD[:8]}"]
)
def test_nothing_but_the_pages_of_its_runs_is_served(asked, path):
    status, _, text = asked(path)
    assert status == 404 and "<script" not in text


def test_a_foreign_host_name_may_not_read_the_runs(asked):
    assert asked("/", Host="elsewhere.example")[0] == 403
    assert asked("/", Host="localhost:8000")[0] == 200  # over a forwarded port
