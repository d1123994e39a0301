"""Evidence from pairs: intervals against other formulas, exact tests, and the claims at each look."""

import math

import numpy as np
import pytest
from scipy import optimize, stats

from fxf.sweeps.evidence import FAILURES, LOOKS, SIGNS, claim_holds, evidence, exact_sign, student_and_hall
from helpers import table

GAUSSIAN = np.random.default_rng(3).normal(0.4, 1, 64).tolist()
SKEWED = np.random.default_rng(4).lognormal(size=64).tolist()


def of(differences):
    """Returns the evidence of differences; None stands for a pair whose other run failed."""
    return evidence([(0.0, d) for d in differences])


def hall_by_search(x, level):
    """Returns the means that Hall's cubic, with Student's quantile, does not reject; computed by SciPy."""
    x = np.asarray(x, float)
    n, m, s, g = len(x), x.mean(), x.std(ddof=1), stats.skew(x)
    t = stats.t.ppf(1 - level / 2, n - 1)

    def z(mean):
        u = (m - mean) / s
        return n**0.5 * (u + g * u * u / 3 + g * g * u**3 / 27 + g / (6 * n))

    return tuple(optimize.brentq(lambda mean, to=to: z(mean) - to, m - 9 * s, m + 9 * s) for to in (t, -t))


@pytest.mark.parametrize("x", [GAUSSIAN[:32], SKEWED[:32], [-v for v in SKEWED[:40]], SKEWED])
@pytest.mark.parametrize("level", [0.035, 0.01])
def test_the_intervals_are_students_and_halls(x, level):
    student, hall = student_and_hall(x, level)
    scale = np.std(x, ddof=1)
    by_scipy = stats.t.interval(1 - level, len(x) - 1, np.mean(x), stats.sem(x))
    np.testing.assert_allclose(student, by_scipy, atol=3e-4 * scale)  # Wallace's quantile
    np.testing.assert_allclose(hall, hall_by_search(x, level), atol=1e-3 * scale)


def test_another_unit_or_direction_changes_nothing_but_the_numbers():
    ends = student_and_hall(SKEWED, 0.035)
    for unit in (-1.0, 1e-200, 1e200):
        expected = [sorted(unit * end for end in pair) for pair in ends]
        np.testing.assert_allclose(student_and_hall([unit * x for x in SKEWED], 0.035), expected, rtol=1e-9)
    assert student_and_hall([0.1] * 32, 0.035) == ((0.1, 0.1),) * 2
    even = student_and_hall([-2.0, -1.0, 0.0, 1.0, 2.0] * 7, 0.035)
    np.testing.assert_allclose(even, [(-0.5, 0.5)] * 2, atol=0.06)  # no skewness


UP, DOWN = [1.0, 1.1, 0.9, 1.2], [-1.0, -1.1, -0.9, -1.2]


@pytest.mark.parametrize("case", [case for case, _ in table("claims of differences")])
def test_a_mean_is_claimed_at_32_and_64_pairs_and_signs_at_each_look(case):
    mean, signs, uneven = case["mean"], case["signs"], case["uneven"]
    x = [difference for part, times in case["x"] for difference in part * times]
    found = of(x)
    assert (found.n, found.mean, found.signs, found.uneven) == (len(x), mean, signs, uneven)
    assert math.isfinite(found.low) == (len(x) >= 32)
    opposite = of([x if x is None else -x for x in x])
    assert (opposite.mean, opposite.signs, opposite.uneven) == (-mean, -signs, uneven)


def test_a_claim_stays_and_pairs_between_looks_change_only_the_effect():
    (low, _), (_, high) = student_and_hall(SKEWED[:32], 0.035)  # Student's lower end and Hall's higher one
    for more in ([-50.0], DOWN * 8, SKEWED[32:]):
        found = of([*SKEWED[:32], *more])
        assert (found.mean, found.low, found.high, found.at) == (1, low, high, 32)
        assert found.effect == pytest.approx((sum(SKEWED[:32]) + sum(more)) / found.n)
    assert of(UP * 2 + DOWN * 6).signs == 1


@pytest.mark.parametrize("split", [(0, 0), (1, 0), (3, 8), (8, 0), (0, 9), (20, 5)])
def test_a_split_has_the_p_of_the_binomial_test(split):
    n = sum(split)
    expected = stats.binomtest(split[0], n).pvalue if n else 1.0
    assert exact_sign(*split) == pytest.approx(expected)


def test_failures_are_claimed_separately_from_the_mean():
    fails, both, fine = (1.0, None), (None, None), (1.0, 1.5)
    cases = [fails] * 8, [fails] * 7 + [both], [(None, 1.0)] * 8  # eight of a kind have p = 2/2^8
    assert [evidence(pairs).failures for pairs in cases] == [1, 0, -1]
    found = evidence([fine, both, fine, fails] * 8)
    assert (found.failed, found.effect, found.failures, found.mean) == ((8, 16), 0.5, 1, 0)  # half remain: no mean
    found = evidence([fine] * 3 * 8 + [both] * 8)
    assert (found.mean, found.failures, found.low) == (1, 0, 0.5)
    assert [claim_holds(1, [*[(1.0, 1.1), (1.0, 0.9)] * n, *[both] * (8 - 2 * n)]) for n in (3, 2)] == [False, True]
    assert math.isnan(evidence([both]).effect) and evidence([])[:2] == (0, (0, 0))


def test_little_at_16_pairs_is_calm_and_more_is_not():
    assert of([1.127, -0.873] * 8).calm and not of([1.131, -0.869] * 8).calm  # t is the mean times √15: 0.492, 0.507
    assert of([0.0] * 16).calm and of([0.0] * 40).calm and not of([0.5, -0.5] * 7).calm


def chance(probability, needed, fires):
    """Returns the probability that `fires(k, n)` at a look, by the distribution of k of n over all paths."""
    open_, total, last = {(0, 0): 1.0}, 0.0, 0
    for look in needed:
        for _ in range(look - last):
            moved = {}
            for (a, b), p in open_.items():
                for step, q in (((1, 0), probability / 2), ((0, 1), probability / 2), ((0, 0), 1 - probability)):
                    key = a + step[0], b + step[1]
                    moved[key] = moved.get(key, 0) + p * q
            open_ = moved
        total += sum(p for (a, b), p in open_.items() if fires(a, b, look))
        open_, last = {(a, b): p for (a, b), p in open_.items() if not fires(a, b, look)}, look
    return total


@pytest.mark.parametrize("probability", [0.3, 1.0])
def test_signs_and_failures_err_as_seldom_as_promised_by_enumeration(probability):
    assert chance(probability, SIGNS, lambda a, b, look: max(a, b) >= SIGNS[look]) <= 0.03
    assert chance(probability, LOOKS, lambda a, b, _: exact_sign(a, b) <= FAILURES) <= 0.024
