"""Tables and page of several runs, and the command, from run folders that are written here."""

import json
import re
import subprocess
import sys

import pytest
from test_pages import data_of, make_run

from fxf.reports import best, compare, report, side_by_side
from fxf.reports.side_by_side import as_html
from fxf.reports.tables import to_csv
from small_runs import ROOT

RATES = {0.1: (0.9, 0.92), 0.2: (0.5, 0.54)}  # and the exact match of each seed


@pytest.fixture
def sweep(tmp_path):
    """Returns a folder of six runs: two rates by two seeds, one that goes on, and one of another task."""
    for rate, exact in RATES.items():
        for seed in (0, 1):
            loss = 10 * rate + seed
            records = [{"step": 3, "loss": 2 * loss}, {"step": 6, "loss": loss}]
            changes = {"optimizer": {"learning_rate": rate}, "seed": seed, "records": records}
            make_run(tmp_path / f"sweep/{rate},{seed}", result={"exact_match": exact[seed]}, **changes)
    make_run(tmp_path / "sweep/on", finished=False, optimizer={"learning_rate": 0.3})
    make_run(tmp_path / "sweep/other", task={"name": "translation"})
    return tmp_path / "sweep"


@pytest.fixture
def found(sweep):
    return compare.comparison(compare.runs_of([sweep]))


def test_the_tables_have_the_keys_that_differ_and_mark_a_mean_that_its_seeds_tell_apart(found):
    table = side_by_side.as_markdown(found).splitlines()
    assert table[0] == "| run | optimizer.learning_rate | seed | status | exact_match ↑ | train_loss ↓ |"
    assert table[2] == "| 0.1,0 | 0.1 | 0 | finished | 0.9 | 1 |"
    assert table[6] == "| on | 0.3 | 0 | stopped: step 6 of 6 | 0.25 | 0.125 |"
    assert "finished: another task" in table[7]
    assert table[-2:] == [
        "| learning_rate=0.1 | 2 | **0.91 ± 0.014** | 1.5 ± 0.71 |",
        "| learning_rate=0.2 | 2 | 0.52 ± 0.028 | 2.5 ± 0.71 |",
    ]


def test_unlike_models_have_a_table_each_without_keys_that_only_another_has(tmp_path):
    models = {"a": {"name": "x", "d_model": 6, "depth": 1}, "b": {"name": "y", "d_model": 7, "width": 2}}
    models |= {"c": {"name": "x", "d_model": 6, "depth": 3}, "d": {"name": "y", "d_model": 7, "width": 2}}
    for name, model in models.items():
        make_run(tmp_path / name, model=model)
    found = compare.comparison(compare.runs_of([tmp_path]))
    assert {key for key in found.keys if key.startswith("model.")} == {"model.name", "model.d_model", "model.depth"}
    first, second = side_by_side.as_markdown(found).split("y:\n\n")
    assert first.startswith("x:\n\n| run | ") and ["| a |" in first, "| c |" in first, "| b |" in first] == [1, 1, 0]
    assert "model.depth" in first and "model.depth" not in second and "model.width" not in first + second


def test_a_line_is_the_mean_over_seeds_in_a_band(sweep, found):
    make_run(sweep / "again", optimizer={"learning_rate": 0.2}, seed=1, records=[{"step": 3, "loss": 2.0}])
    shown = data_of(as_html(compare.comparison(compare.runs_of([sweep]))))
    assert [group["label"] for group in shown["groups"]] == [f"learning_rate=0.{i}" for i in (1, 2, 3)]
    (loss,) = (chart for chart in shown["charts"] if chart["title"] == "training loss")
    assert loss["lines"]["0"] == {"points": [[3, 3.0], [6, 1.5]], "band": [[3, 2, 4], [6, 1, 2]]}
    assert loss["lines"]["1"] == {"points": [[3, 4.0]], "band": [[3, 2, 6]]}  # at the step that all three runs have
    shown = data_of(as_html(found))
    assert [group["best"] for group in shown["groups"]] == [["exact_match"], [], []]
    assert shown["said"] == best.lines(found)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None])
def test_a_value_that_is_no_number_breaks_no_view(value, sweep):
    folder = make_run(sweep / "0.1,2", optimizer={"learning_rate": 0.1}, seed=2, result={"exact_match": value})
    with (folder / "metrics.jsonl").open("a") as file:
        file.write("\n" + json.dumps({"step": 7, "loss": value}) + "\n")
    found = compare.comparison(compare.runs_of([sweep]))
    text, table, page = side_by_side.as_markdown(found), to_csv(side_by_side.all_figures(found)), as_html(found)
    assert "| 0.1,2 | 0.1 | 2 | finished | no value | 0.125 |" in text
    assert "| learning_rate=0.1 | 3 | 0.91 ± 0.014 (1 diverged) |" in text
    assert not re.search(r"\b(nan|inf|None|NaN)\b", text + table + page)
    assert data_of(page)["runs"][2]["figures"]["exact_match"] == "no value"


def test_the_command_compares_without_jax_and_writes_the_page_beside_the_runs_with_a_link_to_each(sweep):
    report.write(sweep / "0.2,1")
    code = "import sys; from fxf.verbs.command import main; main(); assert 'jax' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code, "compare", str(sweep)], cwd=ROOT, capture_output=True, text=True)
    apart, named, command, page_path, _ = done.stderr.split("\n")
    assert (done.returncode, page_path) == (0, f"{sweep / 'compare.html'}")
    assert apart == "not ranked: other: another task"
    assert named == f"best exact_match: {sweep / '0.1,1'}"
    assert f"--from={sweep / '0.1,1'} --config.train.steps=6 --workdir=runs/again" in command
    assert done.stdout.startswith("| run | optimizer.learning_rate | seed |")
    links = [run["link"] for run in data_of((sweep / "compare.html").read_text())["runs"]]
    assert links == [None, None, None, "0.2%2C1/report.html", None, None]
