"""The table over the runs of a sweep."""

import csv
import io
import json

import pytest

from fxf.reports.tables import to_csv, to_markdown
from fxf.sweeps.points import make_points, read_rows, write_table
from small_runs import tiny_config

RESULT = {"identity": "12ab", "task": "reversal", "seed": 1, "exact_match": 0.123456, "note": "a|b", "train_loss": 2.0}


def begin(point, folder):
    (folder / point.name).mkdir()
    (folder / point.name / "config.json").write_text(json.dumps({"config": point.config}))


@pytest.fixture
def points(tmp_path):
    """Three points, of which the last has no result."""
    added = [{"model.n_layers": 2, "seed": 1}, {"model.block": "idea", "seed": 1}, {"seed": 7}]
    points = make_points(tiny_config(), added)
    for point, extra in zip(points, ({}, {"best_step": 4}), strict=False):
        begin(point, tmp_path)
        (tmp_path / point.name / "result.json").write_text(json.dumps(RESULT | extra))
    return points


def test_a_row_holds_every_changed_key_of_the_sweep_and_the_figures_of_its_run(points, tmp_path):
    first, second, third = read_rows(points, tmp_path)
    assert first == {"point": "model.n_layers=2,seed=1", "model.n_layers": 2, "model.block": "pre_norm",
                     "status": "finished", **RESULT}  # fmt: skip
    assert (second["model.n_layers"], second["model.block"], second["best_step"]) == (1, "idea", 4)
    assert third == {"point": "seed=7", "model.n_layers": 1, "model.block": "pre_norm", "seed": 7,
                     "status": "no result"}  # fmt: skip


def test_the_csv_reads_back_as_all_figures_of_all_rows(points, tmp_path):
    rows = read_rows(points, tmp_path)
    read = list(csv.DictReader(io.StringIO(to_csv(rows))))
    assert list(read[0]) == ["point", "model.n_layers", "seed", "model.block", "status", "identity",
                             "task", "exact_match",
                             "note", "train_loss", "best_step"]  # fmt: skip
    assert read == [{name: str(row.get(name, "")) for name in read[0]} for row in rows]


def test_the_markdown_shows_the_columns_that_there_are():
    rows = [{"a": 0.123456, "b": "x|y", "c": 3}, {"a": 12345678, "b": "z"}]
    assert to_markdown(rows, ["b", "c", "a", "b", "absent"]) == (
        "| b | c | a |\n| --- | ---: | ---: |\n| x\\|y | 3 | 0.1235 |\n| z |  | 12345678 |\n"
    )


def test_a_result_overwrites_no_column_of_the_sweep(points, tmp_path):
    spoilt = {"point": "other", "status": "won", "model.n_layers": 9, "seed": 1, "exact_match": 0.5}
    (tmp_path / points[0].name / "result.json").write_text(json.dumps(RESULT | spoilt))
    row = read_rows(points, tmp_path)[0]
    assert (row["point"], row["status"], row["model.n_layers"], row["seed"]) == (points[0].name, "finished", 2, 1)
    assert (row["result.point"], row["result.status"], row["result.model.n_layers"]) == ("other", "won", 9)


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "null"])
def test_a_value_that_is_no_number_is_empty_in_the_csv_and_said_in_markdown(points, tmp_path, value):
    text = json.dumps(RESULT | {"exact_match": 7}).replace("7", value)
    (tmp_path / points[0].name / "result.json").write_text(text)
    rows = list(csv.DictReader(write_table(points, tmp_path).read_text().splitlines()))
    assert [row["exact_match"] for row in rows] == ["", "0.123456", ""]
    assert "| finished | no value |" in to_markdown(read_rows(points, tmp_path), ["status", "exact_match"])


def test_a_point_that_diverged_is_said_to_have(points, tmp_path):
    begin(points[2], tmp_path)
    (tmp_path / points[2].name / "ended.txt").write_text(
        "error: step 5: the loss is nan and the gradient's norm nan; training stopped\n"
    )
    assert [row["status"] for row in read_rows(points, tmp_path)] == ["finished", "finished", "diverged"]


def test_a_text_of_the_csv_is_one_line_and_numbers_stay_numbers():
    row = {"a": "x,y", "c": -1.5, "d": "two\nlines"}
    assert to_csv([row]) == 'a,c,d\n"x,y",-1.5,two\\nlines\n'
