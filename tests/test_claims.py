"""CLAIMS.md and the race: tables follow from kept results, and verdicts from rules and results alone."""

import pytest

from experiments.claims import arms, page, pairs
from experiments.claims.pairs import Paired
from experiments.race import __main__ as race
from experiments.race import entries
from experiments.runner import filled
from fxf.sweeps.evidence import exact_sign
from fxf.verbs.flags import Parser
from helpers import table

TUNED = [[0.1, 3.0], [0.2, 2.0], [0.4, 3.0]]


def results(one, other):
    arms = {"first": one, "second": other}
    return {name: {"runs": [{"loss": x} for x in values], "tuning": TUNED} for name, values in arms.items()}


def paired(least=0.0, better="lower"):
    return Paired("c", "claim", "source", "first", "second", "loss", better, least)


def test_the_page_is_what_the_kept_results_give_and_at_most_1500_words():
    text = page.PAGE.read_text()
    assert filled(page.PAGE, page.tables()) == text
    assert len(text.split()) <= 1500
    p = exact_sign(arms.SEEDS, 0)
    assert f"p = {p:.3f}" in text
    assert f"Of {len(pairs.DEBATED)} claims, {len(pairs.DEBATED) * p:.2f} would" in text


@pytest.mark.parametrize("name", arms.ARMS)
def test_kept_runs_are_of_the_config_that_their_arm_has_now(name):
    arm, kept = arms.ARMS[name], page.read_json(page.KEPT / f"{name}.json", "a kept result")
    arm = arms.at(arm, arms.best_rate(kept["tuning"])) if arm.rates else arm
    assert (kept["config"], kept["changes"]) == (arm.config, dict(arm.changes))
    assert [run["seed"] for run in kept["runs"]] == [*range(arms.SEEDS)]


@pytest.mark.parametrize(("of", "verdict"), table("verdicts of a claim"))
def test_the_signs_of_the_effects_decide(of, verdict):
    assert paired(of["least"], of["better"]).outcome(results(of["one"], of["other"])).verdict == verdict


def test_tuning_goes_on_until_the_best_rate_is_between_two_worse_ones():
    for best in (0.05, 1.0, 7.0):
        found = arms.tuned(lambda rate, best=best: abs(rate - best), (0.5, 1.0, 2.0))
        assert arms.is_bracketed({"tuning": found}) and abs(arms.best_rate(found) - best) <= best / 2
        assert [rate for rate, _ in found] == sorted(rate for rate, _ in found)
    assert len(arms.tuned(lambda rate: rate, (0.5, 1.0, 2.0))) == arms.MOST_RATES  # it ends


def test_a_run_that_diverged_has_the_worst_figure():
    kept = results([1.0, 9.0], [3.0, 2.0])
    kept["first"]["runs"][1] = {"error": "step 7: the loss is nan"}
    assert paired().figures(kept) == ([1.0, 3.0], [3.0, 2.0])


def test_the_page_of_the_race_has_the_tables_of_the_kept_results():
    assert filled(entries.PAGE, {"record": entries.table()}) == entries.PAGE.read_text()


@pytest.mark.thorough
def test_an_entry_runs_with_each_seed_and_its_row_has_seconds_loss_and_speed(capsys):
    race.main(Parser("race", race).parse(["--text=README.md", "--only=fast", "--seeds=2"]))
    found = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[:3] for row in found] == [["characters:fast", "1.88", str(seed)] for seed in (0, 1)]
    assert all(float(figure) > 0 for row in found for figure in row[3:])
