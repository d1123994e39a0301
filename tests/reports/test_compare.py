"""Which runs are seeds of one config, and which score the same, from run folders that are written here."""

import pytest
from test_pages import make_run

from fxf.reports import compare
from helpers import table

TEXTS = {"better": {}, "unit": "nats", "scored": {"test text": "12ab"}}


def compared(folder, *runs):
    for i, run in enumerate(runs):
        make_run(folder / str(i), **run)
    return compare.comparison(compare.runs_of([folder]))


def seeds_of(found):
    """Returns the numbers of the runs by seed, for each group."""
    return [
        {seed: [int(entry.name) for entry in entries] for seed, entries in group.seeds.items()}
        for group in found.groups
    ]


@pytest.mark.parametrize(("change", "groups"), table("one group"))
def test_runs_of_one_seed_are_of_one_group_unless_they_differ_in_what_changes_figures(change, groups, tmp_path):
    (((section, key), value),) = ((name.split("."), value) for name, value in change.items())
    found = compared(tmp_path, {"seed": 5}, {"seed": 5, section: {key: value}}, {"seed": 6})
    assert seeds_of(found) == ([{5: [0, 1], 6: [2]}] if groups == "one" else [{5: [0], 6: [2]}, {5: [1]}])
    assert len({group.label for group in found.groups}) == len(found.groups)


def test_a_seed_that_ran_twice_counts_once_with_its_mean(tmp_path):
    scores = [(0, 0.25), (0, 0.75), (1, 0.0)]
    found = compared(tmp_path, *({"seed": seed, "result": {"exact_match": score}} for seed, score in scores))
    assert found.groups[0].of_seeds("exact_match") == [0.5, 0.0]


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
    assert found.scores() == ["exact_match", "my_accuracy", "mine", "bleu", "edit_error"]
