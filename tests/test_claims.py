"""CLAIMS.md: the page is what the kept results give, and a verdict follows from the rule and the figures alone."""

import pytest

from experiments.claims import debated, page, seeds
from experiments.claims.arms import ARMS
from experiments.claims.claim import Paired
from experiments.claims.jobs import JOBS, UNKNOWN, do_all, jobs_of
from fxf.errors import UserError
from small_runs import ROOT

PAIRS = (*debated.CLAIMS, *debated.NO_HARM)
CLAIMS = [claim for _, claims in page.SECTIONS.values() for claim in claims]


def results(one, other):
    runs = {"first": one, "second": other}
    return {name: {"runs": [{"loss": value} for value in values]} for name, values in runs.items()}


def paired(least=0.0, better="lower"):
    return Paired("c", "says", "source", "first", "second", "loss", better, least)


def test_the_page_is_what_the_kept_results_give():
    assert (ROOT / "CLAIMS.md").read_text() == page.page(ROOT)


def test_there_are_some_thirty_claims_of_which_ten_are_argued_about():
    assert len(CLAIMS) >= 30 and len(debated.CLAIMS) >= 10
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS)
    assert all("arXiv" in claim.source for claim in debated.CLAIMS)


def test_a_claim_that_was_measured_stays_whatever_its_verdict():
    text = (ROOT / "CLAIMS.md").read_text()
    verdicts = [line.split(" | ")[4] for line in text.splitlines() if line.startswith("| ")]
    assert verdicts.count("verdict") == len(page.SECTIONS)
    assert len(verdicts) - len(page.SECTIONS) * 2 == len(CLAIMS)
    assert "does not hold" in verdicts


@pytest.mark.parametrize(
    ("claim", "one", "other", "verdict"),
    [
        (paired(), [1.0, 1.1, 1.2, 1.1, 1.0, 1.1], [1.5, 1.61, 1.7, 1.6, 1.49, 1.6], "holds"),
        (paired(), [1.5, 1.61, 1.7, 1.6, 1.49, 1.6], [1.0, 1.1, 1.2, 1.1, 1.0, 1.1], "does not hold"),
        (paired(better="higher"), [1.5, 1.61, 1.7, 1.6, 1.49, 1.6], [1.0, 1.1, 1.2, 1.1, 1.0, 1.1], "holds"),
        (paired(), [1.0, 1.6, 1.2, 1.1, 1.9, 1.1], [1.1, 1.5, 1.3, 1.0, 1.8, 1.2], "undecided at 6 seeds"),
        (paired(-0.1), [1.01, 1.12, 1.21, 1.1, 1.02, 1.1], [1.0, 1.1, 1.2, 1.1, 1.0, 1.1], "holds"),
        (paired(0.6), [1.0, 1.1, 1.2, 1.1, 1.0, 1.1], [1.5, 1.61, 1.7, 1.6, 1.49, 1.6], "does not hold"),
        (paired(), [1.0, 1.1], [1.5, 1.6], "undecided at 2 seeds"),
    ],
)
def test_the_interval_of_the_effect_decides(claim, one, other, verdict):
    assert claim.outcome(results(one, other)).verdict == verdict


def test_a_run_that_diverged_has_the_worst_figure():
    one, other = paired().figures(
        {
            "first": {"runs": [{"loss": 1.0}, {"error": "step 7: the loss is nan"}]},
            "second": {"runs": [{"loss": 3.0}, {"loss": 2.0}]},
        }
    )
    assert (one, other) == ([1.0, 3.0], [3.0, 2.0])


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


@pytest.mark.parametrize("claim", [c for c in CLAIMS if not isinstance(c, Paired)], ids=lambda claim: claim.name)
def test_a_figure_beyond_its_rule_turns_the_verdict(claim):
    value = claim.accepts.value
    altered = f"{value}0" if isinstance(value, str) else value + (-1 if claim.accepts.sign == "≥" else 1)
    for figure, verdict in ((value, "holds"), (altered, "does not hold")):
        altered_claim = claim._replace(figures=lambda kept, figure=figure: [figure], decided=lambda kept: True)
        assert altered_claim.outcome({}).verdict == verdict
        assert altered_claim._replace(decided=lambda kept: False).outcome({}).verdict == "undecided"


def test_every_arm_belongs_to_a_claim_and_every_claim_to_arms():
    named = [arm.split("/") for claim in PAIRS for arm in (claim.first, claim.second)]
    assert {arm for arm, *_ in named} == set(ARMS)
    assert all(scoring in ARMS[arm].scorings for arm, *more in named for scoring in more)


def test_only_takes_claims_and_jobs_by_name():
    assert jobs_of("swiglu") == ["swiglu", "base"] and jobs_of("") == []
    assert jobs_of("base") == ["base"] and jobs_of("004") == ["004"] and set(jobs_of("recall")) <= set(JOBS)
    with pytest.raises(UserError, match=r"--only.*'swiglo'.*swiglu"):
        jobs_of("swiglo")


def test_the_claims_of_the_seeds_are_those_of_make_seeds():
    assert len({claim.name for claim in seeds.CLAIMS}) == sum(map(len, seeds.TELLING.values()))
    assert len(seeds.CONTRADICTIONS) == len(seeds.ERRORS)


def test_a_job_that_would_end_too_late_is_left_out_and_its_figures_stay(tmp_path):
    (tmp_path / "base.json").write_text('{"seconds": 61}')
    kept = {"folder": tmp_path / "runs", "kept": tmp_path, "made": {}, "workers": 1}
    assert do_all(["base"], **kept, minutes=1) == ([], ["base"])
    assert do_all(["rotary"], **kept, minutes=0.9 * UNKNOWN / 60) == ([], ["rotary"])
    assert (tmp_path / "base.json").read_text() == '{"seconds": 61}' and len(list(tmp_path.iterdir())) == 1


def test_a_row_whose_arms_come_from_two_commits_names_both():
    kept = page.read(ROOT)
    (claim,) = [claim for claim in debated.CLAIMS if claim.name == "swiglu"]
    kept["base"]["made_by"] = {"git_commit": "abcdefghij", "date": "2000-01-02"}
    assert page.made_by(claim, None, kept).endswith(" and abcdefg 2000-01-02")
