"""How often verdicts are right: a small simulation, the kept one, and the numbers in docs/trials.md."""

import csv
import json

import numpy as np
import pytest

from experiments.benchmarks import verdict_runs, verdicts
from fxf.sweeps.evidence import claim_holds, evidence
from small_runs import ROOT

KEPT = ROOT / "experiments/results/verdicts"
PAGE = (ROOT / "docs/trials.md").read_text()
TABLE = json.loads((KEPT / "table.json").read_text())["table"]
REAL = [row for row in TABLE if row["kind"] == "null, real runs"]
# The smallest shares of right claims in the kept simulation, in per cent.
LEAST = {"Gaussian, 0.5 deviations": (69, 90), "Gaussian, 1 deviations": (99, 99)}


def check(rows, n_trials, sigmas):
    """Asserts the shares of simulated rows, within some standard errors for that number of trials."""

    def error(percent):
        return sigmas * 100 * (percent / 100 * (1 - percent / 100) / n_trials) ** 0.5

    promised = ("null, symmetric", "null, skewed", "null, rates chosen", "null, real runs")
    nulls = [row for row in rows if row["kind"] in promised]
    assert len(nulls) >= 9
    for row in nulls:
        for column, most in {"mean, 32 pairs": 6, "mean, 64": 6.2, "failures, 64": 2.4}.items():
            assert row[column] <= most + error(most), row
        if row["kind"] == "null, symmetric":
            assert row["signs"] <= 3 + error(3), row  # exactly 2.68 (test_evidence); a simulation scatters
    failing = {row["differences"]: row for row in rows if row["kind"] == "failures"}
    for name in ("both fail in 10 %", "both fail in 50 %"):
        assert failing[name]["failures, 64"] <= 2.4 + error(2.4)
        assert failing[name]["mean, 64"] <= 6.2 + error(6.2)
    assert failing["failures 30 % and 0"]["failures, 64"] > 95
    powers = {row["differences"]: row for row in rows if row["kind"] == "effect"}
    for name, least in LEAST.items():
        for column, percent in zip(("mean, 32 pairs", "mean, 64"), least, strict=True):
            assert powers[name][column] >= percent - error(percent)


def test_a_small_simulation_errs_as_seldom_and_finds_as_much_as_promised():
    check(verdicts.simulated(2_000, seed=1), 2_000, sigmas=3)


def test_the_kept_simulation_and_the_real_nulls_err_as_seldom_and_find_as_much_as_promised():
    kept = [row for row in TABLE if row["kind"] != "null, real runs"]
    assert len({row["differences"].split(",")[0] for row in REAL}) == 3
    check(kept, verdicts.TRIALS, sigmas=0)
    for row in REAL:
        assert max(row[column] for column in ("mean, 32 pairs", "mean, 64", "mean or signs")) <= 6, row


def test_the_real_nulls_follow_from_the_kept_runs():
    rows = verdicts.pool_rows(400, seed=3)
    assert [row["differences"] for row in rows] == [row["differences"] for row in REAL]
    for name, pool in verdict_runs.POOLS.items():
        runs = list(csv.DictReader((KEPT / f"pool_{name}.csv").read_text().splitlines()))
        assert [int(run["seed"]) for run in runs] == list(range(verdict_runs.SEEDS))
        assert set(runs[0]) == {"seed", *pool.figures}
    assert max(row["mean, 64"] for row in rows) <= 6 + 3 * 1.2


@pytest.mark.thorough
def test_seeds_that_train_as_one_program_have_the_figures_of_each_alone(monkeypatch):
    pool = verdict_runs.POOLS["reversal"]
    short = pool._replace(changes={**pool.changes, "train.steps": 3, "optimizer.warmup_steps": 0})
    monkeypatch.setitem(verdict_runs.POOLS, "reversal", short)
    monkeypatch.setattr(verdict_runs, "SEEDS", 2)
    together, alone = [], []
    for n, rows in ((2, together), (1, alone)):
        monkeypatch.setattr(verdict_runs, "AT_ONCE", n)
        rows += [list(row.values()) for row in verdict_runs.train_pool("reversal")]
    np.testing.assert_allclose(together, alone, rtol=1e-5)
    assert together[0][1] != together[1][1]


@pytest.mark.parametrize("shape", ["Gaussian", "±1", "log-normal", "rare collapse, 10 %"])
@pytest.mark.parametrize("failing", [0.0, 0.2])
def test_many_trials_at_a_time_claim_what_the_evidence_of_each_does(shape, failing):
    rng = np.random.default_rng(5)
    x = {**verdicts.SYMMETRIC, **verdicts.SKEWED}[shape](rng, 150, 64) + 0.2
    first, other = (rng.random(x.shape) < share for share in (failing / 4, failing))
    known = np.where(first | other, np.nan, x)
    for n in (32, 64):
        found = verdicts.claims(known, other * 1 - first, n)
        for i in range(len(x)):
            pairs = [(None if a else 0.0, None if b else d) for d, a, b in zip(x[i], first[i], other[i], strict=True)]
            one = evidence(pairs[:n])
            assert (found.mean[i], found.signs[i], found.failures[i]) == (one.mean, one.signs, one.failures)
            assert bool(found.uneven[i]) == one.uneven


def test_many_claims_at_a_time_stay_where_each_does():
    x_TN = np.random.default_rng(6).normal(0.2, 1, (2, 200, 32))
    claims = np.tile([1, -1], 100)
    found = verdicts._still(claims, np.stack([x_TN, x_TN]))
    pairs = zip(claims, x_TN.swapaxes(0, 1), strict=True)
    each = [all(claim_holds(c, [(0.0, d) for d in x]) for x in pair) for c, pair in pairs]
    assert list(found) == each and 0 < sum(each) < 200


def test_the_example_of_the_page_is_the_kept_trial_and_follows_from_its_pairs():
    verdict = json.loads((KEPT / "example/verdict.json").read_text())
    assert "".join(f"    {line}\n" for line in verdict["lines"]) in PAGE
    rows = list(csv.DictReader((KEPT / "example/table.csv").read_text().splitlines()))
    found = evidence([(float(row["first"]), float(row["other"])) for row in rows])
    kept = [verdict[name] for name in ("effect", "low", "high", "pairs")]
    np.testing.assert_allclose([found.effect, found.low, found.high, found.n], kept, rtol=1e-9)


def test_the_table_of_the_page_is_the_kept_one():
    assert verdicts.page_table(TABLE) == (KEPT / "page.md").read_text()
    assert (KEPT / "page.md").read_text() in PAGE


def test_the_page_says_how_many_reversals_fall_short_and_how_often_pairs_show_no_collapse():
    exact = [float(row["exact"]) for row in csv.DictReader((KEPT / "pool_reversal.csv").read_text().splitlines())]
    short, low = (sum(share < bound for share in exact) for bound in (1, 0.5))
    said = f"{len(exact)} runs of one tiny config ({short} reversals stay below exact match 1, one below 0.5)"
    assert low == 1 and said in " ".join(PAGE.split())
    often, seldom = (f"{100 * (1 - share) ** 32:.0f} %" for share in (0.1, 0.05))
    assert f"in a tenth of its runs, 32 pairs show none in {often} of trials, at 5 % in {seldom}." in PAGE


def test_planted_faults_are_found_and_another_set_of_seeds_has_the_same_verdict():
    kept = {name: figures["verdict"] for name, figures in verdicts.planted().items()}
    assert kept.keys() == verdict_runs.PLANTED.keys()
    assert {verdict for name, verdict in kept.items() if not name.startswith("gelu")} == {"worse"}
    assert len({verdict for name, verdict in kept.items() if name.startswith("gelu")}) == 1
