"""A claim, the rule that decides it, and the verdict that follows from the kept figures."""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import mean, stdev
from typing import Any, Literal, NamedTuple

from experiments.seeds.claims import Rule, shown
from fxf.trials.evidence import evidence

LEVEL = 0.05  # of the interval of a paired claim
Verdict = str
Results = Mapping[str, Any]  # kept figures by the name of what measured them


class Outcome(NamedTuple):
    """What the kept figures say of a claim."""

    measured: str
    verdict: Verdict


class Paired(NamedTuple):
    """A claim about two arms, tested on pairs of runs that have the same seed.

    The effect of a pair is by how much the first arm's figure is better than the second's. The claim holds if the
    interval of the mean effect lies above `least`, and does not hold if it lies below. The interval is the confidence
    sequence of `fxf.trials.evidence`, so it is valid at any number of pairs.

    Attributes:
      first, second: names of arms (`experiments.claims.arms.ARMS`), or ARM/SCORING of one.
      figure: of result.json.
      better: whether a lower or a higher figure is better.
      least: what the mean effect must exceed; a negative number is a loss that counts as none.
    """

    name: str
    says: str
    source: str
    first: str
    second: str
    figure: str
    better: Literal["lower", "higher"]
    least: float

    @property
    def rule(self) -> str:
        """Returns the rule in words."""
        if self.least < 0:
            return f"{self.figure} of {self.first} at most {-self.least:g} worse than of {self.second}"
        by = f" by more than {self.least:g}" if self.least else ""
        return f"{self.figure} of {self.first} {self.better} than of {self.second}{by}"

    def figures(self, results: Results) -> tuple[list[float], list[float]]:
        """Returns the figures of both arms, in the order of the seeds.

        A run whose loss was not finite has the worst figure of all.
        """
        both = [_figures(results, arm, self.figure) for arm in (self.first, self.second)]
        known = [value for arm in both for value in arm if value is not None]
        worst = max(known) if self.better == "lower" else min(known)
        one, other = ([worst if value is None else value for value in arm] for arm in both)
        return one, other

    def outcome(self, results: Results) -> Outcome:
        one, other = self.figures(results)
        sign = 1 if self.better == "higher" else -1
        effects = [sign * (a - b) for a, b in zip(one, other, strict=True)]
        found = evidence([effect - self.least for effect in effects], LEVEL)
        low, high = found.low + self.least, found.high + self.least
        verdict = f"undecided at {len(effects)} seeds"
        if low > self.least:
            verdict = "holds"
        elif high < self.least:
            verdict = "does not hold"
        interval = f"{low:.3g} to {high:.3g}" if math.isfinite(high - low) else "any size"
        diverged = sum(
            value is None for arm in (self.first, self.second) for value in _figures(results, arm, self.figure)
        )
        note = f"; {diverged} runs diverged" if diverged else ""
        return Outcome(f"{spread(one)} and {spread(other)}; effect {mean(effects):.3g} ({interval}){note}", verdict)


class Single(NamedTuple):
    """A claim about one figure, or about the mean of figures over seeds.

    Attributes:
      what: what the figure is.
      command: repeats the measurement.
      figures: returns the figure for each seed, or one, from kept results.
      accepts: the rule.
      folder: where the results are kept.
      why: why the rule is not the source's own figure.
      decided: returns whether the results can decide the claim; they can by default.
    """

    name: str
    says: str
    source: str
    what: str
    command: str
    accepts: Rule
    figures: Callable[[Any], Sequence[Any]]
    folder: str = ""
    why: str = ""
    decided: Callable[[Any], bool] = lambda results: True

    @property
    def rule(self) -> str:
        return f"{self.what} {self.accepts}" + (f" · {self.why}" if self.why else "")

    def outcome(self, results: Any) -> Outcome:
        figures = self.figures(results)
        value = figures[0] if len(figures) == 1 else mean(figures)
        measured = shown(value) if len(figures) == 1 else spread(figures)
        if not self.decided(results):
            return Outcome(measured, "undecided")
        return Outcome(measured, "holds" if self.accepts.accepts(value) else "does not hold")


def spread(figures: Sequence[float]) -> str:
    """Returns mean ± standard deviation."""
    return f"{mean(figures):.4g} ± {stdev(figures):.2g}" if len(figures) > 1 else f"{figures[0]:.4g}"


def _figures(results: Results, arm: str, figure: str) -> list[float | None]:
    """Returns a figure of each run of an arm; None if the run's loss was not finite."""
    name, _, scoring = arm.partition("/")
    key = f"{scoring}/{figure}" if scoring else figure
    return [None if "error" in run else run[key] for run in results[name]["runs"]]
