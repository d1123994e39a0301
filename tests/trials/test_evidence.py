"""The evidence of differences: its mathematics by direct integration, and its guarantees by simulation."""

import math

import numpy as np
import pytest

from fxf.trials.evidence import WIDTH, evidence, fewest

LEVEL = 0.05
X = (0.4, -0.2, 0.9, 0.7, 0.3, 1.1, 0.5)


def e_by_integration(x):
    """Returns the likelihood of x by that under the mean 0, each integrated over its priors on a grid."""
    sigma_S1 = np.exp(np.linspace(-6, 8, 701))[:, None]
    delta_1D = np.linspace(-9, 9, 601)[None] * WIDTH
    prior_1D = np.exp(-(delta_1D**2) / 2 / WIDTH**2)
    log_SD = sum(-((value / sigma_S1 - delta_1D) ** 2) / 2 for value in x) - len(x) * np.log(sigma_S1)
    log_S1 = sum(-((value / sigma_S1) ** 2) / 2 for value in x) - len(x) * np.log(sigma_S1)
    return (np.exp(log_SD) * prior_1D).sum() / prior_1D.sum() / np.exp(log_S1).sum()  # dσ/σ is d log σ


@pytest.mark.parametrize("n", [2, 3, 7])
def test_p_is_the_smallest_inverse_of_the_ratio_of_integrated_likelihoods(n):
    p = min(1.0, *(1 / e_by_integration(X[:k]) for k in range(2, n + 1)))
    np.testing.assert_allclose(evidence(X[:n]).p, p, rtol=1e-9)


def test_one_difference_says_nothing():
    assert evidence([0.3]) == (0.3, -math.inf, math.inf, 1.0, 1)


@pytest.mark.parametrize("level", [0.05])
def test_the_interval_holds_the_means_that_are_not_rejected(level):
    found = evidence(X, level)
    for inside, end in ((1e-9, found.low), (-1e-9, found.high)):
        assert evidence([x - end - inside for x in X], level).p > level
        assert evidence([x - end + inside for x in X], level).p <= level
    assert found.low < found.effect < found.high


def test_another_unit_or_direction_changes_nothing_but_the_numbers():
    found = evidence(X)
    for unit in (-1.0, 1e-200, 1e200):
        other = evidence([unit * x for x in X])
        ends = sorted((unit * found.low, unit * found.high))
        np.testing.assert_allclose(other, [unit * found.effect, *ends, found.p, found.n], rtol=1e-12)


def test_equal_differences_have_the_evidence_of_their_number_and_none_if_they_are_0():
    assert evidence([0.0] * 9) == (0.0, 0.0, 0.0, 1.0, 9)
    assert not evidence([0.0] * 9).is_clear
    assert evidence([0.1] * 4).high == math.inf
    assert not evidence([0.1] * 4).is_clear
    found = evidence([0.1] * 5)
    assert found[:3] == (0.1, 0.1, 0.1)
    assert found.is_clear
    assert found.p == pytest.approx((1 + 5 * WIDTH**2) ** -2)


@pytest.mark.parametrize(("level", "n"), [(0.05, 5), (0.01, 6), (0.2, 4)])
def test_fewest_is_the_number_of_differences_from_which_an_effect_can_be_clear(level, n):
    assert fewest(level) == n
    assert not evidence([1.0] * (n - 1), level).is_clear
    assert evidence([1.0] * n, level).is_clear


def share_of_clear(draw, n_trials=900, n=24):
    """Returns how many trials end with a clear answer, looking after each of n differences."""
    rng = np.random.default_rng(0)
    return np.mean([evidence(draw(rng, n).tolist(), LEVEL).is_clear for _ in range(n_trials)])


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, n: rng.normal(0, 7, n),
        lambda rng, n: rng.standard_t(2, n),
        lambda rng, n: rng.integers(0, 2, n) - rng.integers(0, 2, n),  # exact match is 0 or 1 in each arm
    ],
    ids=["gaussian", "heavy tails", "zero or one"],
)
def test_of_trials_without_an_effect_at_most_a_share_of_the_level_is_clear(draw):
    assert share_of_clear(draw) <= LEVEL + 2 * math.sqrt(LEVEL * (1 - LEVEL) / 900)


@pytest.mark.parametrize(("effect", "n"), [(1.0, 24), (2.0, 10), (3.0, 7)])
def test_nine_of_ten_effects_of_one_to_three_spreads_are_found(effect, n):
    assert share_of_clear(lambda rng, n: rng.normal(effect, 1, n), 200, n) >= 0.9


@pytest.mark.parametrize("differences", [[], [0.1, math.nan], [math.inf]])
def test_differences_that_are_no_numbers_are_refused(differences):
    with pytest.raises(ValueError, match="expected finite numbers"):
        evidence(differences)
