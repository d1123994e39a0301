"""Which run is the best, and when that is said."""

import ast
import math

import numpy as np
import pytest
import scipy.stats
from test_pages import make_run

from fxf.reports import best, compare
from helpers import table

NATS = {"better": {}, "unit": "nats", "scored": {"test text": "12ab"}}


def tokens(digest, **more):
    return {**NATS, "digests": {"tokenizer.json": digest}, "files": ["tokenizer.json"], **more}


def compared(folder, *runs):
    """Returns the comparison of runs, each of another learning rate unless it says one."""
    for i, run in enumerate(runs):
        make_run(folder / str(i), **{"optimizer": {"learning_rate": (i + 1) / 8}, **run})
    return compare.comparison(compare.runs_of([folder]))


def places(found, name):
    return [found.groups.index(group) for group in best.best_groups(found, name)]


def of(seed, rate, **result):
    return {"seed": seed, "optimizer": {"learning_rate": rate}, "result": result}


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


@pytest.mark.parametrize(
    ("records", "results", "expected"),
    [
        (("12ab", "12ab"), ({}, {}), "lowest test_loss (one seed each: not told apart): /0"),
        (("12ab", "34cd"), ({}, {}), "lowest bits_per_byte (one seed each: not told apart): /1"),
        (("12ab", "34cd"), ({"unknown_share": 0.25}, {}), "not ranked: bits_per_byte: the tokenizers differ, and one"),
        (("12ab", "34cd"), ({"unknown_share": 1e-5}, {}), "lowest bits_per_byte (one seed each: not told apart): /1"),
    ],
)
def test_runs_with_other_tokenizers_are_ranked_by_bits_of_the_text(records, results, expected, tmp_path):
    losses = ({"test_loss": 1.0, "bits_per_byte": 2.5}, {"test_loss": 2.0, "bits_per_byte": 0.9})
    runs = [
        {"record": tokens(digest), "result": {"exact_match": 0, **loss, **more}}
        for digest, loss, more in zip(records, losses, results, strict=True)
    ]
    said = [line.replace(str(tmp_path), "") for line in best.lines(compared(tmp_path, *runs))]
    assert any(line.startswith(expected) for line in said)
    told = "not ranked: test_loss: it is per token, and the tokenizers differ"
    assert (told in said) == (records[0] != records[1])


def test_runs_on_other_texts_are_never_ranked(tmp_path):
    texts = [
        {"record": {**NATS, "scored": {"set of test pairs": text}}, "result": {"bleu": i}}
        for i, text in enumerate("ab")
    ]
    assert best.lines(compared(tmp_path, *texts)) == ["not ranked: 1: another set of test pairs"]
    found = compared(tmp_path / "three", *texts, {**texts[0], "result": {"bleu": 0.5}})
    assert best.best_run(found)[1:] == ("bleu", "one seed each") and best.best_run(found)[0].folder.name == "2"


@pytest.mark.parametrize("value", [math.nan, -math.inf, None])
@pytest.mark.parametrize(("name", "first", "place"), [("bits_per_byte", 1.0, 0), ("bleu", 3.0, 2)])
def test_a_value_that_is_no_number_is_never_the_best(name, first, place, value, tmp_path):
    values = [3.0, 1.0]
    values.insert(place, value)
    found = compared(tmp_path, *({"result": {name: each}} for each in values))
    run, by, why = best.best_run(found)
    assert (run.result[name], by, why) == (first, name, "one seed each")


def test_a_group_of_which_a_seed_diverged_is_not_the_best_whether_it_left_a_result_or_not(tmp_path):
    runs = [of(seed, rate, bleu=10 * rate + seed / 50) for rate in (0.1, 0.2) for seed in range(3)]
    assert places(compared(tmp_path / "a", *runs), "bleu") == [1]
    lost = {**of(3, 0.2), "finished": False}
    found = compared(tmp_path / "b", *runs, lost, of(0, 0.05, bleu=0.0), of(1, 0.05, bleu=0.1))
    (tmp_path / "b/6/ended.txt").write_text("error: step 5: the loss is nan and the gradient's norm nan\n")
    found = compare.comparison(compare.runs_of([tmp_path / "b"]))
    assert [group.n_diverged("bleu") for group in found.groups] == [0, 1, 0]
    assert places(found, "bleu") == [0]


def test_equal_scores_tie_and_the_next_score_chooses_the_run_to_go_on_from(tmp_path):
    scores = [(0.5, 3), (1.0, 2), (1.0, 4)]
    found = compared(tmp_path, *({"result": {"exact_match": a, "bleu": b}} for a, b in scores))
    run, name, why = best.best_run(found)
    assert (run.folder.name, name, why) == ("2", "exact_match", "others are equal")
    assert places(found, "exact_match") == []


def test_seeds_of_one_config_are_not_ranked(tmp_path):
    found = compared(tmp_path, *(of(seed, 0.1, bleu=float(seed)) for seed in range(3)))
    assert best.lines(found) == ["not ranked: no score tells a run from the others"]
    assert best.lines(compare.comparison(found.runs[:1])) == []
