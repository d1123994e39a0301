"""CLAIMS.md: its tables are what the kept results give, and a verdict follows from the rule and the figures alone."""

import pytest

from experiments.claims import others, page, pairs
from experiments.claims.pairs import Paired
from experiments.runner import filled
from experiments.seeds.rules import at_least
from fxf.errors import UserError

PAIRS = (*pairs.DEBATED, *pairs.OURS)


def results(one, other):
    runs = {"first": one, "second": other}
    return {name: {"runs": [{"loss": value} for value in values]} for name, values in runs.items()}


def paired(least=0.0, better="lower"):
    return Paired("c", "says", "source", "first", "second", "loss", better, least)


def test_the_page_is_what_the_kept_results_give():
    text = page.PAGE.read_text()
    assert filled(page.PAGE, page.tables()) == text
    assert "| does not hold |" in text


def test_only_takes_claims_and_jobs_by_name():
    assert page.jobs_of("swiglu") == ["swiglu", "base"] and page.jobs_of("none") == []
    assert page.jobs_of("base") == ["base"] and page.jobs_of("004") == ["004"]
    with pytest.raises(UserError, match=r"--only.*'swiglo'.*swiglu"):
        page.jobs_of("swiglo")


ONE, OTHER = [1.0, 1.1, 1.2, 1.1, 1.0, 1.1, 1.2, 1.0], [1.5, 1.61, 1.7, 1.6, 1.49, 1.6, 1.7, 1.5]


@pytest.mark.parametrize(
    ("claim", "one", "other", "verdict"),
    [
        (paired(), ONE, OTHER, "holds"),
        (paired(), OTHER, ONE, "does not hold"),
        (paired(better="higher"), OTHER, ONE, "holds"),
        (paired(), [1.0, 1.6, 1.2, 1.1, 1.9, 1.1], [1.1, 1.5, 1.3, 1.0, 1.8, 1.2], "undecided at 6 seeds"),
        (paired(-0.1), [value + 0.01 for value in ONE], ONE, "holds"),
        (paired(0.6), ONE, OTHER, "does not hold"),
        (paired(), [1.0, 1.1], [1.5, 1.6], "undecided at 2 seeds"),
    ],
)
def test_the_interval_of_the_effect_decides(claim, one, other, verdict):
    assert claim.outcome(results(one, other)).verdict == verdict


def test_a_run_that_diverged_has_the_worst_figure_and_is_told():
    kept = results([1.0, 9.0], [3.0, 2.0])
    kept["first"]["runs"][1] = {"error": "step 7: the loss is nan"}
    assert paired().figures(kept) == ([1.0, 3.0], [3.0, 2.0])
    assert paired().outcome(kept).measured.endswith("; 1 runs diverged")


@pytest.mark.parametrize("claim", PAIRS, ids=lambda claim: claim.name)
def test_an_altered_result_turns_the_verdict_of_a_pair(claim):
    arms = [arm.partition("/")[::2] for arm in (claim.first, claim.second)]
    kept = {name: {"runs": [{} for _ in range(8)]} for name, _ in arms}
    for sign, verdict in ((1, "holds"), (-1, "does not hold")):
        for number, (name, scoring) in enumerate(arms):
            good = (number == 0) == (claim.better == "higher")
            for seed, run in enumerate(kept[name]["runs"]):
                figure = f"{scoring}/{claim.figure}" if scoring else claim.figure
                run[figure] = sign * ((9.0 if good else 1.0) + 0.01 * (seed % 3))
        assert claim.outcome(kept).verdict == verdict


@pytest.mark.parametrize(
    ("figures", "outcome"),
    [([3.0], ("3", "holds")), ([2.9], ("2.9", "does not hold")), ([2.0, 4.0], ("3 ± 1.4", "holds"))],
)
def test_a_rule_decides_by_the_mean_of_several_figures(figures, outcome):
    assert others.of_rule(at_least(3), figures) == outcome
