"""Sequential tests on pairs of runs: of the mean difference, of the signs of the differences, and of failures.

The looks are fixed beforehand, at 8, 16, 32 and 64 pairs. The mean is claimed only at 32 and 64 pairs, and only if
Student's and Hall's intervals both exclude 0 (Hall 1992, "On the removal of skewness by transformation", corrects
Student's for skewness). Fewer pairs are not enough: if a tenth of an arm's runs collapse, 8 pairs show no collapse with
probability 0.43. Signs and failures have exact tests at every look. docs/trials.md has the error rates.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist, pstdev
from typing import NamedTuple

TEST = (
    "the mean by Student's and Hall's intervals at 32 pairs (0.035) and 64 (0.01); "
    "signs and failures exactly; a claim at the rates beside that of the worse config (0.2)"
)
LOOKS = (8, 16, 32, 64)
LEVELS = {32: 0.035, 64: 0.01}  # of a claim about the mean
SIGNS = {8: 8, 16: 15, 32: 23}  # by look: pairs of one sign that a claim needs; false positives: 2.7 % over all looks
FAILURES = 0.008  # level of the exact test of failures at each look
CALM, CALM_AT = 0.5, 16  # below this |t| at this look, more pairs are unlikely to find a difference
WHOLE = 0.75  # the share of pairs without failure that a claim about the mean needs
CHECK = 0.2  # level of the interval that must exclude 0 with the worse config at another learning rate

Figures = tuple[float | None, float | None]  # the metric of a pair's first and other run; None: it failed


class Evidence(NamedTuple):
    """What n pairs show about the metric's difference other - first.

    Attributes:
      n: the number of pairs.
      failed: the number of failed runs of each arm.
      effect: the mean difference over the pairs where neither run failed; nan if there is none.
      low, high: the confidence interval of that mean at the last look with one; infinite before.
      at: the look of that interval, 0 before.
      mean: 1 or -1 for the claim that the mean is above or below 0.
      uneven: whether Student's interval excludes 0 but Hall's does not, so that outliers decide.
      signs: 1 or -1 for the claim that most differences are above or below 0.
      failures: 1 or -1 for the claim that the other fails more or less often.
      calm: whether |t| at 16 pairs is so small that more pairs are unlikely to find a difference.
    """

    n: int
    failed: tuple[int, int]
    effect: float
    low: float = -math.inf
    high: float = math.inf
    at: int = 0
    mean: int = 0
    uneven: bool = False
    signs: int = 0
    failures: int = 0
    calm: bool = False


def evidence(pairs: Sequence[Figures]) -> Evidence:
    """Returns the evidence of the pairs, in order, at the looks so far.

    A claim is never withdrawn. The interval is that of the look that claimed the mean, or else of the last look.
    """
    failed = sum(first is None for first, _ in pairs), sum(other is None for _, other in pairs)
    x = differences(pairs)
    result = Evidence(len(pairs), failed, math.fsum(x) / len(x) if x else math.nan)
    for look in (look for look in LOOKS if look <= len(pairs)):
        result = _at_look(result, pairs[:look])
    return result


def differences(pairs: Sequence[Figures]) -> list[float]:
    """Returns other - first of the pairs where neither run failed."""
    return [float(other) - float(first) for first, other in pairs if first is not None and other is not None]


def claim_holds(claim: int, pairs: Sequence[Figures]) -> bool:
    """Returns whether the claim 1 or -1 holds when the worse config has another learning rate, as in `pairs`.

    It holds if Student's interval of their mean is on its side of 0, or if too many runs fail at that rate.
    """
    x = differences(pairs)
    if len(x) < max(2, WHOLE * len(pairs)):
        return True
    low, high = student_and_hall(x, CHECK)[0]
    return (low > 0) - (high < 0) == claim


def _at_look(previous: Evidence, pairs: Sequence[Figures]) -> Evidence:
    """Returns the evidence with the tests of the look at these pairs."""
    look, x = len(pairs), differences(pairs)
    above, below = sum(d > 0 for d in x), sum(d < 0 for d in x)
    fewest = SIGNS.get(look, look + 1)
    more = sum(first is not None and other is None for first, other in pairs)
    less = sum(first is None and other is not None for first, other in pairs)
    signs = previous.signs or (above >= fewest) - (below >= fewest)
    failures = previous.failures or (exact_sign(more, less) <= FAILURES) * ((more > less) - (more < less))
    result = previous._replace(signs=signs, failures=failures)
    if len(x) < WHOLE * look:
        return result
    if look == CALM_AT:
        spread = pstdev(x) / math.sqrt(len(x) - 1)
        result = result._replace(calm=abs(math.fsum(x) / len(x)) < CALM * spread or not any(x))
    if look in LEVELS and not result.mean:
        student, hall = student_and_hall(x, LEVELS[look])
        claims = [(low > 0) - (high < 0) for low, high in (student, hall)]
        mean = claims[0] if claims[0] == claims[1] else 0
        low, high = min(student[0], hall[0]), max(student[1], hall[1])
        result = result._replace(low=low, high=high, at=look, mean=mean, uneven=claims[0] != mean)
    return result


def student_and_hall(x: Sequence[float], level: float) -> tuple[tuple[float, float], tuple[float, float]]:
    """Returns Student's and Hall's confidence intervals of the mean of at least two numbers.

    Student's interval is m ± s·y and Hall's is m - s·h(±y), with the standard deviation s (by n - 1), the skewness g,
    y = t/√n and h(y) = 3/g · (∛(1 + g·(y - g/6n)) - 1). Student's quantile t is Wallace's approximation (1959), within
    0.0003 from 27 degrees of freedom on. If all numbers are equal, both intervals are that number.
    """
    n, mean, spread = len(x), math.fsum(x) / len(x), pstdev(x)
    if spread == 0:
        return (x[0], x[0]), (x[0], x[0])
    g = math.fsum(((v - mean) / spread) ** 3 for v in x) / n
    df, z = n - 1, NormalDist().inv_cdf(1 - level / 2)
    s = spread * math.sqrt(n / df)
    t_squared = df * math.expm1((z * (8 * df + 3) / (8 * df + 1)) ** 2 / df)
    y = math.sqrt(t_squared / n)

    def h(y: float) -> float:  # near g = 0, the limit
        return y if abs(g) < 1e-6 else 3 / g * (math.cbrt(1 + g * (y - g / (6 * n))) - 1)

    return (mean - s * y, mean + s * y), (mean - s * h(y), mean - s * h(-y))


def exact_sign(more: int, less: int) -> float:
    """Returns the two-sided p-value of the exact sign test."""
    n = more + less
    return min(1.0, 2 * sum(math.comb(n, k) for k in range(max(more, less), n + 1)) / 2**n)
