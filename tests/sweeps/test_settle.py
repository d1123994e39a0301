"""Settings chosen before the pairs: rates with equal effort, and equal compute."""

import dataclasses
import json
import math

import pytest
from test_trial import FIRST, ORIGIN, QUICK, WIDER, trained  # noqa: F401

from fxf.base.errors import UserError
from fxf.runs.experiment import build
from fxf.runs.flops import PerToken
from fxf.sweeps.plan import Arm, Budget, changed, make_plan
from fxf.sweeps.trial import run_trial
from helpers import refused, table
from small_runs import tiny_config

RATE = FIRST.config["optimizer"]["learning_rate"]
RULES = {"metric": "train_loss", "rates": 3}


def rate_of(config):
    return config["optimizer"]["learning_rate"]


def bowl(best):
    """Returns a run's metric, lowest at `best` times the configs' rate, and dependent on the seed."""
    return lambda config: abs(math.log2(rate_of(config) / RATE / best)) + 0.001 * (config["seed"] % 10)


@pytest.mark.parametrize(("of", "rates"), table("search of rates"))
def test_the_search_continues_beyond_the_best_rate_by_at_most_two_steps(of, rates, tmp_path, trained):  # noqa: F811
    best, bracketed, tried = of["best"], ":" not in rates, [*map(float, rates.partition(":")[0].split())]
    trained.figure = bowl(best)
    found = run_trial(make_plan(FIRST, WIDER, tmp_path, **RULES), tmp_path, Budget(2))
    for name in ("first", "other"):
        settled = found.settled[name]
        assert [rate for rate, _ in settled.tried] == pytest.approx([RATE * times for times in tried])
        assert settled.bracketed == bracketed
        assert settled.changes["optimizer.learning_rate"] == pytest.approx(RATE * min(best, tried[-1]))
    assert (found.verdict == "undecided: not bracketed", len(found.pairs)) == (not bracketed, 2 * bracketed)
    seeds = [json.loads(path.read_text())["config"]["seed"] for path in tmp_path.glob("rates/*/config.json")]
    assert sorted(seeds) == [seed for seed in (1_000_004, 1_000_005) for _ in range(2 * len(tried))]  # for each arm


def test_equal_metrics_leave_the_rate_unchanged_and_a_diverging_rate_is_worst(tmp_path, trained):  # noqa: F811
    trained.figure = lambda config: 1.0 if rate_of(config) < 2 * RATE else math.nan
    found = run_trial(make_plan(FIRST, WIDER, tmp_path, **RULES), tmp_path, Budget(2))
    assert found.settled["first"].changes["optimizer.learning_rate"] == RATE
    assert found.settled["first"].tried[-1] == [2 * RATE, None]
    trained.figure = lambda config: math.nan
    nothing = run_trial(make_plan(FIRST, WIDER, tmp_path / "none", **RULES), tmp_path / "none", Budget(2))
    assert nothing.verdict == "undecided: not bracketed" and "but a run failed at each rate" in str(nothing)


LOWER = {0.5: 0.9, 1: 0.0, 2: 0.7}  # the first config's metric, without noise, by the factor of its rate


@pytest.mark.parametrize(("of", "verdict"), table("claims beside other rates"))
def test_a_claim_stays_at_rates_beside_the_worse_one(of, verdict, tmp_path, trained):  # noqa: F811
    def figure(config):
        factor, seed = rate_of(config) / RATE, config["seed"]
        levels = LOWER if config["model"]["d_ff"] == FIRST.config["model"]["d_ff"] else of["other"]
        level = levels[factor] if seed >= 1_000_000 else levels.get("pairs", {}).get(factor, levels[factor])
        return math.nan if level is None or seed == of.get("failing") else level + 0.01 * math.sin(9 * seed + factor)

    trained.figure = figure
    plan, budget = make_plan(FIRST, WIDER, tmp_path, **RULES), Budget(of["seeds"], whole=True)
    found = run_trial(plan, tmp_path, budget)
    assert found.verdict == verdict
    assert ("the claim falls" in str(found)) == (verdict == "undecided: the rate decides")
    assert {rate / RATE: len(figures) for rate, figures in found.checks.items()} == pytest.approx(of["checked"])
    n = len(trained.names)
    assert (run_trial(plan, tmp_path, budget._replace(whole=False)), len(trained.names)) == (found, n)
    without = dataclasses.replace(found, checks={}).headline
    assert (without == "undecided: not yet checked at other rates") == bool(of["checked"])


def test_pairs_run_with_the_chosen_rates_and_a_stopped_trial_keeps_them(tmp_path, trained):  # noqa: F811
    trained.figure = bowl(2)
    plan = make_plan(FIRST, WIDER, tmp_path, **RULES)
    before = run_trial(plan, tmp_path, Budget(2))
    assert run_trial(plan, tmp_path, Budget(2)) == before
    record = json.loads((tmp_path / "other-5/config.json").read_text())
    assert rate_of(record["config"]) == 2 * RATE
    n, told = len(trained.names), []
    found = run_trial(plan, tmp_path, Budget(3, workers=1), told.append)
    assert told[2] == "the next 3 pairs take about 0.1 minutes"  # seconds for each fake run
    assert trained.names[n:] == ["first-6", "other-6"]
    assert found.settled["other"].changes == {"optimizer.learning_rate": 2 * RATE}


@pytest.mark.parametrize(("of", "message"), refused("trials of equal compute"))
def test_equal_compute_changes_the_steps_of_the_other_config(of, message, tmp_path, trained, monkeypatch):  # noqa: F811
    match = of["match"]
    # The fastest fake run takes 0.1 s times d_ff; tests/runs/test_flops.py counts operations.
    flops = lambda experiment: PerToken(3.0, experiment.config["model"]["d_ff"], frozenset())  # noqa: E731
    for module in ("plan", "settle"):
        monkeypatch.setattr(f"fxf.sweeps.{module}.flops_per_token", flops)
    long = {"train": {"steps": 6000, "batch_size": 5}, "optimizer": {"warmup_steps": 99}, "log": {"every": 4}, **QUICK}
    first = Arm(tiny_config(seed=4, **long), ORIGIN)
    other = changed(first, {"model.d_ff": 29, "train.batch_size": 10})
    found = run_trial(make_plan(first, other, tmp_path, **RULES, match=match), tmp_path, Budget(2))
    steps = found.settled["other"].changes["train.steps"]
    assert steps == round(6000 * 7 / 29 / (2 if match == "flops" else 1))  # a fake run's seconds ignore its batches
    assert len(trained.names) == 3 * 2 * (match == "seconds") + 2 * 2 * 3 + 2 * 2
    if match == "seconds":
        build(json.loads((tmp_path / "measured/other-2/config.json").read_text())["config"])  # with so long a warm-up
    config = json.loads((tmp_path / "other-4/config.json").read_text())["config"]
    assert (config["train"]["steps"], "train.steps" in found.settled["first"].changes) == (steps, False)
    assert f"steps of the other {steps:,}, for equal {match}" in found.lines()
    arms, folder = [changed(arm, of["changes"]) for arm in (first, other)], tmp_path / "refused"
    with pytest.raises(UserError, match=message):
        run_trial(make_plan(*arms, folder, **RULES, match=match), folder, Budget(2))
