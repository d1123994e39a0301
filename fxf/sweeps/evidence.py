"""What pairs of runs say: the mean of their differences, the signs of these, and failures, each by a test of its own.

Looks are fixed beforehand, at 8, 16, 32 and 64 pairs. A claim about the mean is made at 32 and 64 only, where Student's
interval and Hall's both leave out 0 (Hall 1992, "On the removal of skewness by transformation"; it corrects Student's
for skewness). Fewer pairs cannot carry one: an arm that collapses in a tenth of its runs shows no collapse in 8 pairs
with probability 0.43. The signs and the failures are tested exactly at every look. docs/trials.md has how often each
test errs.
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
SIGNS = {8: 8, 16: 15, 32: 23}  # the fewest pairs of one sign that show a sign; together wrong in 2.7 % of all trials
FAILURES = 0.008  # level of the exact test of failures at each look
CALM, CALM_AT = 0.5, 16  # below this |t| at this look nothing is likely to be found by more pairs
WHOLE = 0.75  # the least share of the pairs without failure that a claim about the mean needs
CHECK = 0.2  # level of the interval that must leave out 0 if the worse config has another rate

Figures = tuple[float | None, float | None]  # of the first run of a pair and of the other; None is one that failed


class Evidence(NamedTuple):
    """What n pairs say of the other run's figure beside the first's.

    Attributes:
      n: the number of pairs.
      failed: how many runs of each arm failed.
      effect: the mean of other - first over the pairs where neither failed; nan without one.
      low, high: the interval of that mean at the newest look that may claim one; all numbers before the first.
      mean: 1 or -1 if the mean is above or below 0.
      uneven: whether Student's interval leaves out 0 and Hall's does not, so that outliers decide.
      signs: 1 or -1 if most differences are above or below 0.
      failures: 1 or -1 if the other fails more or less often.
      calm: whether 16 pairs show so little that more will hardly find a difference.
    """

    n: int
    failed: tuple[int, int]
    effect: float
    low: float = -math.inf
    high: float = math.inf
    mean: int = 0
    uneven: bool = False
    signs: int = 0
    failures: int = 0
    calm: bool = False


def evidence(pairs: Sequence[Figures]) -> Evidence:
    """Returns what the pairs, in their order, say at the looks so far.

    A claim once made stays. The interval is that of the look that claimed, or else of the newest.
    """
    failed = sum(first is None for first, _ in pairs), sum(other is None for _, other in pairs)
    known = differences(pairs)
    found = Evidence(len(pairs), failed, math.fsum(known) / len(known) if known else math.nan)
    for look in (look for look in LOOKS if look <= len(pairs)):
        found = _at_look(found, pairs[:look])
    return found


def differences(pairs: Sequence[Figures]) -> list[float]:
    """Returns other - first of the pairs where neither run failed."""
    return [float(other) - float(first) for first, other in pairs if first is not None and other is not None]


def still(claim: int, pairs: Sequence[Figures]) -> bool:
    """Returns whether the claim 1 or -1 stays in pairs whose worse config has another rate.

    It does if their mean is on its side of 0 by Student's interval, or if too many runs fail with that rate.
    """
    x = differences(pairs)
    if len(x) < max(2, WHOLE * len(pairs)):
        return True
    low, high = student_and_hall(x, CHECK)[0]
    return (low > 0) - (high < 0) == claim


def _at_look(found: Evidence, pairs: Sequence[Figures]) -> Evidence:
    look, x = len(pairs), differences(pairs)
    above, below = sum(d > 0 for d in x), sum(d < 0 for d in x)
    fewest = SIGNS.get(look, look + 1)
    more = sum(first is not None and other is None for first, other in pairs)
    less = sum(first is None and other is not None for first, other in pairs)
    signs = found.signs or (above >= fewest) - (below >= fewest)
    failures = found.failures or (exact_sign(more, less) <= FAILURES) * ((more > less) - (more < less))
    found = found._replace(signs=signs, failures=failures)
    if len(x) < WHOLE * look:
        return found
    if look == CALM_AT:
        spread = pstdev(x) / math.sqrt(len(x) - 1)
        found = found._replace(calm=abs(math.fsum(x) / len(x)) < CALM * spread or not any(x))
    if look in LEVELS and not found.mean:
        student, hall = student_and_hall(x, LEVELS[look])
        claims = [(low > 0) - (high < 0) for low, high in (student, hall)]
        mean = claims[0] if claims[0] == claims[1] else 0
        low, high = min(student[0], hall[0]), max(student[1], hall[1])
        found = found._replace(low=low, high=high, mean=mean, uneven=claims[0] != mean)
    return found


def student_and_hall(x: Sequence[float], level: float) -> tuple[tuple[float, float], tuple[float, float]]:
    """Returns both intervals of the mean of at least two numbers; if all are equal, both are that number.

    With the standard deviation s (by n - 1) and the skewness g, Hall's ends are m - s·h(±y) for Student's m ± s·y,
    where h(y) = 3/g · (∛(1 + g·(y - g/6n)) - 1) and y = t/√n. Student's quantile t is Wallace's formula (1959), within
    0.0003 from 27 degrees of freedom on.
    """
    n, mean, spread = len(x), math.fsum(x) / len(x), pstdev(x)
    if spread == 0:
        return (x[0], x[0]), (x[0], x[0])
    g = math.fsum(((v - mean) / spread) ** 3 for v in x) / n
    df, z = n - 1, NormalDist().inv_cdf(1 - level / 2)
    s = spread * math.sqrt(n / df)
    t_squared = df * math.expm1((z * (8 * df + 3) / (8 * df + 1)) ** 2 / df)
    y = math.sqrt(t_squared / n)

    def h(y: float) -> float:  # at g = 0 its limit
        return y if abs(g) < 1e-6 else 3 / g * (math.cbrt(1 + g * (y - g / (6 * n))) - 1)

    return (mean - s * y, mean + s * y), (mean - s * h(y), mean - s * h(-y))


def exact_sign(more: int, less: int) -> float:
    """Returns the two-sided p of so uneven a split, if each of the two is as likely."""
    n = more + less
    return min(1.0, 2 * sum(math.comb(n, k) for k in range(max(more, less), n + 1)) / 2**n)
