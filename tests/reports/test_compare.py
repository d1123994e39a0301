"""Which runs are seeds of one config, which score the same, and which is the best, from run folders written here."""

import ast

import numpy as np
import pytest
import scipy.stats
from test_pages import make_run

from fxf.reports import best, compare
from helpers import table

TEXTS = {"better": {}, "unit": "nats", "scored": {"test text": "12ab"}}


def compared(folder, *runs):
    """Returns the comparison of runs, by the keywords of make_run."""
    for i, run in enumerate(runs):
        make_run(folder / str(i), **run)
    return compare.comparison(compare.runs_of([folder]))


def of(seed, rate, **result):
    return {"seed": seed, "optimizer": {"learning_rate": rate}, "result": result}


def of_columns(columns):
    """Returns the runs of a table that gives each key of theirs as a list, with one value for each run."""
    runs = [{} for _ in next(iter(columns.values()))]
    for name, column in columns.items():
        section, _, key = name.partition(".")
        for run, value in zip(runs, column, strict=True):
            run |= {section: {**run.get(section, {}), key: value} if key else value}
    return runs


@pytest.mark.parametrize(("columns", "said"), table("what is said of runs"))
def test_the_groups_of_runs_and_what_is_said_of_them(columns, said, tmp_path):
    found = compared(tmp_path, *of_columns(columns))
    groups, _, of_best = said.partition(" > ")
    assert " ".join("+".join(entry.name for entry in group.entries) for group in found.groups) == groups
    assert "; ".join(line for line in lines(found, tmp_path) if "fxf train" not in line) == of_best


def lines(found, folder):
    return [line.replace(str(folder), "") for line in best.lines(found)]


@pytest.mark.parametrize(("change", "groups"), table("one group"))
def test_runs_of_one_seed_are_of_one_group_unless_they_differ_in_what_changes_figures(change, groups, tmp_path):
    (((section, key), value),) = ((name.split("."), value) for name, value in change.items())
    found = compared(tmp_path, {"seed": 5}, {"seed": 5, section: {key: value}}, {"seed": 6})
    names = [[entry.name for entry in group.entries] for group in found.groups]
    assert names == ([["0", "1", "2"]] if groups == "one" else [["0", "2"], ["1"]])
    assert len({group.label for group in found.groups}) == len(found.groups)


def test_a_seed_that_ran_twice_counts_once_with_its_mean(tmp_path):
    scores = [(0, 0.25), (0, 0.75), (1, 0.0)]
    found = compared(tmp_path, *({"seed": seed, "result": {"exact_match": score}} for seed, score in scores))
    assert found.groups[0].of_seeds("exact_match") == [0.5, 0.0] and found.groups[0].n_seeds() == 2


@pytest.mark.parametrize(("other", "why"), table("runs apart"))
def test_a_run_that_scores_other_data_than_most_stands_apart(other, why, tmp_path):
    usual = {"record": TEXTS} if "scored" in other.get("record", {}) else {}
    found = compared(tmp_path, usual, {**usual, "seed": 1}, other)
    assert [entry.apart for entry in found.entries] == ["", "", why.strip("-")]
    assert [entry.is_compared for entry in found.entries] == [True, True, why == "-"]


def test_which_way_a_figure_is_better_is_what_the_task_says_and_else_what_its_name_says(tmp_path):
    says = {"better": {"my_accuracy": "lower", "mine": "higher", "unclear": "lower"}}
    result = {"my_accuracy": 1, "mine": 2, "unclear": 3, "bleu": 4, "nothing": 5, "edit_error": 6}
    runs = [{"record": says, "result": result}, {"record": {"better": {"unclear": "higher"}}, "result": result}]
    found = compared(tmp_path, *runs)
    assert found.better == {
        **{"seed": "", "exact_match": "higher", "train_loss": "lower", "my_accuracy": "lower", "mine": "higher"},
        **{"unclear": "", "bleu": "higher", "nothing": "", "edit_error": "lower"},
    }
    assert found.scores == ["exact_match", "my_accuracy", "mine", "bleu", "edit_error"]


@pytest.mark.parametrize(("groups", "expected"), table("best group"))
def test_the_best_group_is_told_apart_only_if_its_seeds_tell_it_from_all_others(groups, expected):
    assert best.best(groups["values"], groups["better"]) == ast.literal_eval(expected)


def test_two_groups_are_told_apart_where_welchs_interval_leaves_out_0():
    rng, found = np.random.default_rng(3), []
    for n_one, n_other, gap in [(2, 3, 2), (5, 4, 1), (3, 3, 0), (7, 2, 3), (4, 9, 1.4), (2, 2, 9)]:
        one, other = rng.normal(0, 1, n_one), rng.normal(gap, 0.5, n_other)
        interval = scipy.stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.95)
        found.append(best.told_apart(one.tolist(), other.tolist()))
        assert found[-1] == (not interval.low <= 0 <= interval.high)
    assert set(found) == {True, False}


def test_a_group_of_which_a_seed_diverged_is_not_the_best_whether_it_left_a_result_or_not(tmp_path):
    runs = [of(seed, rate, bleu=10 * rate + seed / 50) for rate in (0.1, 0.2) for seed in range(3)]
    found = compared(tmp_path / "a", *runs)
    assert best.best_groups(found, "bleu") == [found.groups[1]]
    lost = {**of(3, 0.2), "finished": False}
    compared(tmp_path / "b", *runs, lost, of(0, 0.05, bleu=0.0), of(1, 0.05, bleu=0.1))
    (tmp_path / "b/6/ended.txt").write_text("error: step 5: the loss is nan and the gradient's norm nan\n")
    found = compare.comparison(compare.runs_of([tmp_path / "b"]))
    assert [group.n_diverged("bleu") for group in found.groups] == [0, 1, 0]
    assert best.best_groups(found, "bleu") == [found.groups[0]]
