"""Comparison of runs, from run folders written here: groups of seeds, the best group, tables and page."""

import ast
import json
import re
import subprocess
import sys

import numpy as np
import pytest
import scipy.stats
from test_pages import data_of, make_run

from fxf.reports import best, compare, report, side_by_side
from fxf.reports.side_by_side import as_html
from fxf.reports.tables import to_csv
from helpers import table
from small_runs import ROOT

TEXTS = {"better": {}, "unit": "nats", "scored": {"test text": "12ab"}}


def compared(folder, *runs):
    """Returns the comparison of runs, by the keywords of make_run."""
    for i, run in enumerate(runs):
        make_run(folder / str(i), **run)
    return compare.comparison(compare.runs_of([folder]))


def of(seed, rate, **result):
    return {"seed": seed, "optimizer": {"learning_rate": rate}, "result": result}


def of_columns(columns):
    """Returns the runs of a table that has a list per key, with one value per run."""
    runs = [{} for _ in next(iter(columns.values()))]
    for name, column in columns.items():
        section, _, key = name.partition(".")
        for run, value in zip(runs, column, strict=True):
            run |= {section: {**run.get(section, {}), key: value} if key else value}
    return runs


@pytest.mark.parametrize(("columns", "said"), table("descriptions of runs"))
def test_runs_are_grouped_and_the_best_is_described(columns, said, tmp_path):
    found = compared(tmp_path, *of_columns(columns))
    groups, _, of_best = said.partition(" > ")
    assert " ".join("+".join(entry.name for entry in group.entries) for group in found.groups) == groups
    assert "; ".join(line for line in lines(found, tmp_path) if "fxf train" not in line) == of_best


def lines(found, folder):
    return [line.replace(str(folder), "") for line in best.lines(found)]


@pytest.mark.parametrize(("change", "groups"), table("one group"))
def test_runs_of_one_seed_are_one_group_unless_keys_that_change_results_differ(change, groups, tmp_path):
    (((section, key), value),) = ((name.split("."), value) for name, value in change.items())
    found = compared(tmp_path, {"seed": 5}, {"seed": 5, section: {key: value}}, {"seed": 6})
    names = [[entry.name for entry in group.entries] for group in found.groups]
    assert names == ([["0", "1", "2"]] if groups == "one" else [["0", "2"], ["1"]])
    assert len({group.label for group in found.groups}) == len(found.groups)


def test_a_seed_that_ran_twice_counts_once_with_its_mean(tmp_path):
    scores = [(0, 0.25), (0, 0.75), (1, 0.0)]
    found = compared(tmp_path, *({"seed": seed, "result": {"exact_match": score}} for seed, score in scores))
    assert found.groups[0].seed_values("exact_match") == [0.5, 0.0] and found.groups[0].n_seeds() == 2


@pytest.mark.parametrize(("other", "why"), table("separate runs"))
def test_a_run_that_scores_other_data_than_most_is_separate(other, why, tmp_path):
    usual = {"record": TEXTS} if "scored" in other.get("record", {}) else {}
    found = compared(tmp_path, usual, {**usual, "seed": 1}, other)
    assert [entry.difference for entry in found.entries] == ["", "", why.strip("-")]
    assert [entry.is_compared for entry in found.entries] == [True, True, why == "-"]


def test_the_task_or_else_the_name_says_which_way_a_metric_is_better(tmp_path):
    says = {"better": {"my_accuracy": "lower", "mine": "higher", "unclear": "lower", "nothing": ""}}
    result = {"my_accuracy": 1, "mine": 2, "unclear": 3, "bleu": 4, "nothing": 5, "edit_error": 6}
    runs = [{"record": says, "result": result}, {"record": {"better": {"unclear": "higher"}}, "result": result}]
    found = compared(tmp_path, *runs)
    assert found.better == {
        **{"seed": "", "exact_match": "higher", "train_loss": "lower", "my_accuracy": "lower", "mine": "higher"},
        **{"unclear": "", "bleu": "higher", "nothing": "", "edit_error": "lower"},
    }
    assert found.scores == ["exact_match", "my_accuracy", "mine", "bleu", "edit_error"] and "nothing" in found.columns


@pytest.mark.parametrize(("groups", "expected"), table("best group"))
def test_the_best_group_is_named_only_if_its_seeds_separate_it_from_all_others(groups, expected):
    assert best.best(groups["values"], groups["better"]) == ast.literal_eval(expected)


def test_two_groups_differ_if_welchs_interval_excludes_0():
    rng, found = np.random.default_rng(3), []
    for n_one, n_other, gap in [(2, 3, 2), (5, 4, 1), (3, 3, 0), (7, 2, 3), (4, 9, 1.4), (2, 2, 9)]:
        one, other = rng.normal(0, 1, n_one), rng.normal(gap, 0.5, n_other)
        interval = scipy.stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.95)
        found.append(best.differ_clearly(one.tolist(), other.tolist()))
        assert found[-1] == (not interval.low <= 0 <= interval.high)
    assert set(found) == {True, False}


def test_a_group_with_a_diverged_seed_is_not_the_best_with_or_without_a_result(tmp_path):
    runs = [of(seed, rate, bleu=10 * rate + seed / 50) for rate in (0.1, 0.2) for seed in range(3)]
    found = compared(tmp_path / "a", *runs)
    assert best.best_groups(found, "bleu") == [found.groups[1]]
    lost = {**of(3, 0.2), "finished": False}
    compared(tmp_path / "b", *runs, lost, of(0, 0.05, bleu=0.0), of(1, 0.05, bleu=0.1))
    (tmp_path / "b/6/ended.txt").write_text("error: step 5: the loss is nan and the gradient's norm nan\n")
    found = compare.comparison(compare.runs_of([tmp_path / "b"]))
    assert [group.n_diverged("bleu") for group in found.groups] == [0, 1, 0]
    assert best.best_groups(found, "bleu") == [found.groups[0]]
    assert best.lines(found)[0] == "not ranked: learning_rate=0.2: a seed diverged"


RATES = {0.1: (0.9, 0.92), 0.2: (0.5, 0.54)}  # and each seed's exact match


@pytest.fixture
def sweep(tmp_path):
    """Returns a folder of six runs: two rates by two seeds, one still running, and one of another task."""
    for rate, exact in RATES.items():
        for seed in (0, 1):
            records = [{"step": 3, "loss": 2 * (10 * rate + seed)}, {"step": 6, "loss": 10 * rate + seed}]
            result = {"exact_match": exact[seed], "parameters": 18123 + (rate > 0.1) * 2001 * seed}
            changes = {"optimizer": {"learning_rate": rate}, "seed": seed, "records": records, "result": result}
            make_run(tmp_path / f"sweep/{rate},{seed}", **changes)
    make_run(tmp_path / "sweep/on", finished=False, optimizer={"learning_rate": 0.3})
    make_run(tmp_path / "sweep/other", task={"name": "translation"})
    return tmp_path / "sweep"


@pytest.fixture
def found(sweep):
    return compare.comparison(compare.runs_of([sweep]))


def test_the_tables_have_the_keys_that_differ_and_mark_a_significant_mean(found):
    table = side_by_side.as_markdown(found).splitlines()
    assert table[0] == "| run | optimizer.learning_rate | seed | status | exact_match ↑ | train_loss ↓ | parameters |"
    assert table[2] == "| 0.1,0 | 0.1 | 0 | finished | 0.9 | 1 | 18123 |"
    assert table[6] == "| on | 0.3 | 0 | stopped: step 6 of 6 | 0.25 | 0.125 |  |"
    assert "finished: another task" in table[7]
    assert table[-2:] == [
        "| learning_rate=0.1 | 2 | **0.91 ± 0.014** | 1.5 ± 0.71 | 18123 ± 0 |",
        "| learning_rate=0.2 | 2 | 0.52 ± 0.028 | 2.5 ± 0.71 | 19120 ± 1400 |",
    ]


def test_unlike_models_have_a_table_each_without_keys_that_only_another_has(tmp_path):
    models = {"a2": {"name": "x", "d_model": 6, "depth": 1}, "b": {"name": "y", "d_model": 7, "width": 2}}
    models |= {"a10": {"name": "x", "d_model": 6, "depth": 3}, "d": {"name": "y", "d_model": 7, "width": 2}}
    for name, model in models.items():
        make_run(tmp_path / name, model=model, optimizer={"name": model["name"]})
    found = compare.comparison(compare.runs_of([tmp_path]))
    assert {key for key in found.keys if key.startswith("model.")} == {"model.name", "model.d_model", "model.depth"}
    assert [group.label[:30] for group in found.groups[:1]] == ["d_model=6, model.name=x, depth"]
    first, second = side_by_side.as_markdown(found).split("y:\n\n")
    assert first.startswith("x:\n\n| run | ") and re.findall(r"\n\| (\w+) \|", first) == ["run", "a2", "a10"]
    assert "model.depth" in first and "model.depth" not in second and "model.width" not in first + second


def test_a_line_is_the_mean_over_seeds_in_a_band(sweep, found, monkeypatch):
    monkeypatch.setattr(side_by_side, "MOST_OF_LABEL", 9)
    make_run(sweep / "again", optimizer={"learning_rate": 0.2}, seed=1, records=[{"step": 3, "loss": 2.0}])
    shown = data_of(as_html(compare.comparison(compare.runs_of([sweep]))))
    assert [group["label"] for group in shown["groups"]] == [f"learning_rate=0.{i}" for i in (1, 2, 3)]
    (loss,) = (chart for chart in shown["charts"] if chart["title"] == "training loss")
    assert loss["lines"]["0"] == {"points": [[3, 3.0], [6, 1.5]], "band": [[3, 2, 4], [6, 1, 2]]}
    assert loss["lines"]["1"] == {"points": [[3, 4.0], [6, 2.5]], "band": [[3, 2, 6], [6, 2, 3]]}
    shown = data_of(as_html(found))
    short, of_best = zip(*((group["short"], group["best"]) for group in shown["groups"]), strict=True)
    assert short == ("0.1,0 and 1 more", "0.2,0 and 1 more", "on") and of_best == (["exact_match"], [], [])
    assert shown["said"] == best.lines(found)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None])
def test_a_value_that_is_not_a_number_breaks_no_view(value, sweep):
    lost = dict.fromkeys(["exact_match", "parameters"], value)
    folder = make_run(sweep / "0.1,2", optimizer={"learning_rate": 0.1}, seed=2, result=lost)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write("\n" + json.dumps({"step": 7, "loss": value}) + "\n")
    found = compare.comparison(compare.runs_of([sweep]))
    text, table, page = side_by_side.as_markdown(found), to_csv(side_by_side.all_figures(found)), as_html(found)
    assert "| 0.1,2 | 0.1 | 2 | finished | no value | 0.125 |" in text
    assert re.search(r"\| learning_rate=0.1 \| 3 \| 0.91 ± 0.014 \(1 diverged\) \| .* \| 18123 ± 0 \|", text)
    assert not re.search(r"\b(nan|inf|None|NaN)\b", text + table + page)
    assert data_of(page)["runs"][2]["figures"]["exact_match"] == "no value"


def test_the_command_compares_without_jax_and_writes_the_page_beside_the_runs_with_a_link_to_each(sweep):
    report.write(sweep / "0.2,1")
    code = "import sys; from fxf.verbs.command import main; main(); assert 'jax' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code, "compare", str(sweep)], cwd=ROOT, capture_output=True, text=True)
    apart, named, command, page_path, _ = done.stderr.split("\n")
    assert (done.returncode, page_path, apart) == (0, f"{sweep}/compare.html", "not ranked: other: another task")
    assert named == f"best exact_match: {sweep / '0.1,1'}"
    assert done.stdout.startswith("| run | optimizer.learning_rate | seed |")
    assert f"--from={sweep / '0.1,1'} --config.train.steps=6 --workdir=runs/again" in command
    links = [run["link"] for run in data_of((sweep / "compare.html").read_text())["runs"]]
    assert links == [None, None, None, "0.2%2C1/report.html", None, None]
