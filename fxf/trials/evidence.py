"""What the differences of pairs say about their mean, however often one looks and whenever one stops.

The test is the sequential t-test with a Gaussian mixture (Wang and Ramdas 2023, arXiv:2310.03722; Lai 1976 has a flat
mixture, and Robbins 1970 the method). It takes the differences for independent and Gaussian, of any mean and variance.
E_n is the likelihood of the first n under the alternative, divided by that under the mean 0. Both are integrated over
the standard deviation with the right Haar prior, and the alternative over the standardized mean with N(0, WIDTH²).
While the mean is 0, E_n is a martingale of mean 1, so it reaches 1/level with probability level at most (Ville 1939).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

TEST = (
    "sequential t-test with a Gaussian mixture: Wang and Ramdas 2023, arXiv:2310.03722; "
    "prior N(0, 1) of the standardized mean; p is the smallest 1/E so far, the interval all means that no E rejects"
)
# At level 0.05 five differences are then the fewest that can show an effect. With 1/2 they are seven. With 2 they are
# four, but an effect as large as the spread takes longer to find.
WIDTH = 1.0


class Evidence(NamedTuple):
    """What n differences say.

    Attributes:
      effect: their mean.
      low, high: the ends of the confidence sequence, which holds the true mean at all n with probability 1 - level.
      p: the anytime-valid p-value of the mean 0.
      n: the number of differences.
    """

    effect: float
    low: float
    high: float
    p: float
    n: int

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0


def evidence(differences: Sequence[float], level: float = 0.05) -> Evidence:
    """Returns the evidence that the differences, in the order of their pairs, give about their mean.

    The interval is all numbers while there are fewer differences than `fewest`. If all are equal, it is one number, and
    p depends on n alone. If all are 0, p is 1.

    Args:
      level: the probability of an error, above 0 and below 1.

    Raises:
      ValueError: a difference is not finite, or there is none.
    """
    if not differences or not all(map(math.isfinite, differences)):
        raise ValueError(f"differences: expected finite numbers, got {list(differences)}")
    low, high, p = -math.inf, math.inf, 1.0
    for n in range(1, len(differences) + 1):
        mean, spread = _mean_and_spread(differences[:n])
        p = min(p, math.exp(-_log_e(mean, spread, n)))
        radius = _radius(spread, n, level)
        if max(low, mean - radius) <= min(high, mean + radius):  # else this interval meets none of the earlier ones
            low, high = max(low, mean - radius), min(high, mean + radius)
    return Evidence(mean, low, high, p, n)


def fewest(level: float) -> int:
    """Returns the smallest number of differences that can leave out 0 at this level."""
    return next(n for n in range(2, 10_000) if _largest_log_e(n) >= -math.log(level))


def _mean_and_spread(x: Sequence[float]) -> tuple[float, float]:
    """Returns the mean, and the root of the mean square of the deviations from it."""
    if min(x) == max(x):
        return x[0], 0.0  # without rounding
    mean = math.fsum(x) / len(x)
    return mean, math.hypot(*(value - mean for value in x)) / math.sqrt(len(x))


def _log_e(mean: float, spread: float, n: int) -> float:
    """Returns log E_n. E_n is, with k = 1 + n · WIDTH², (1 + (k - 1) · m² / (m² + k·s²))^(n/2) / √k."""
    k = 1 + n * WIDTH**2
    ratio = spread / mean if mean else math.inf
    return n / 2 * math.log1p((k - 1) / (1 + k * ratio * ratio)) - math.log(k) / 2


def _largest_log_e(n: int) -> float:
    """Returns log E_n of n equal differences."""
    return (n - 1) / 2 * math.log1p(n * WIDTH**2)


def _radius(spread: float, n: int, level: float) -> float:
    """Returns how far from the mean of n differences another mean has E_n = 1/level; infinite if no mean has."""
    k = 1 + n * WIDTH**2
    log_ratio = (math.log(k) - 2 * math.log(level)) / n
    if log_ratio >= math.log(k):
        return math.inf
    return spread * math.sqrt(k * math.expm1(log_ratio) / (k - math.exp(log_ratio)))
