"""The verdict of a trial: what its pairs say, as lines, as JSON and as a table."""

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fxf.errors import UserError
from fxf.files import to_json, write_atomically
from fxf.reports.tables import to_csv
from fxf.trials.evidence import Evidence, evidence, fewest
from fxf.trials.plan import Plan

VERDICT, TABLE = "verdict.json", "table.csv"
BETTER, WORSE, NO_DIFFERENCE = "better", "worse", "no difference found"


class Pair(NamedTuple):
    """Two runs: their seeds, the figure of each, None if it diverged, and the seconds of both."""

    seeds: tuple[int, int]
    first: float | None
    other: float | None
    seconds: float


class Verdict(NamedTuple):
    """What a trial found.

    Attributes:
      verdict: `better`, `worse` or `no difference found`, of the other config compared with the first.
      evidence: of the differences of the figure, other - first.
      stopped: why the trial ended, or nothing while it goes on.
    """

    plan: Plan
    pairs: list[Pair]
    verdict: str
    evidence: Evidence
    stopped: str

    def __repr__(self) -> str:
        """Returns the lines for a reader, where a notebook would print both configs."""
        return "\n".join(self.lines())

    def diverged(self) -> tuple[int, int]:
        """Returns how many runs of each arm diverged."""
        return sum(pair.first is None for pair in self.pairs), sum(pair.other is None for pair in self.pairs)

    def figures(self) -> dict[str, Any]:
        """Returns the object of verdict.json, with null where the interval has no end."""
        plan, found = self.plan, self.evidence
        ends = {name: end if math.isfinite(end) else None for name, end in (("low", found.low), ("high", found.high))}
        return {
            "verdict": self.verdict,
            "metric": plan.metric,
            "better": plan.better,
            "metric_named_beforehand": plan.named,
            "effect": found.effect,
            **ends,
            "level": plan.level,
            "p": found.p,
            "pairs": found.n,
            "seconds": round(sum(pair.seconds for pair in self.pairs), 3),
            "stopped": self.stopped,
            "diverged": dict(zip(("first", "other"), self.diverged(), strict=True)),
            "null": plan.null,
        }

    def lines(self) -> list[str]:
        """Returns a few lines for a reader."""
        plan, found = self.plan, self.evidence
        between = f"{_number(found.low)} to {_number(found.high)}" if math.isfinite(found.low) else "of all numbers"
        seconds = sum(pair.seconds for pair in self.pairs)
        took = f"{seconds / 60:.1f} minutes" if seconds >= 60 else f"{seconds:.1f} seconds"
        values = [_mean([pair.first for pair in self.pairs]), _mean([pair.other for pair in self.pairs])]
        yes = "was named beforehand" if plan.named else "was not named; it is the task's own first figure"
        lines = [
            f"{self._headline()}: {plan.metric} {values[0]} of the first config, {values[1]} of the other "
            f"({plan.better} is better)",
            f"effect {_number(found.effect)}, {1 - plan.level:.4g} interval {between}",
            f"p {found.p:.2g}: the probability that chance alone makes so clear a difference, however often one looks",
            f"{found.n} pairs of seeds, {took}" + (f"; {self.stopped}" if self.stopped else ""),
            f"the metric {yes}",
        ]
        if any(self.diverged()):
            first, other = self.diverged()
            lines.append(
                f"diverged: {first} runs of the first config, {other} of the other; where one of a pair diverged, "
                "it is worse by the largest difference of the other pairs"
            )
        if plan.null:
            lines.append("null trial: both configs are the same, and the two runs of a pair have different seeds")
        return lines

    def _headline(self) -> str:
        if self.verdict != NO_DIFFERENCE:
            return f"{self.verdict}"
        if all(difference == 0 for difference in differences(self.plan, self.pairs)):
            return f"{NO_DIFFERENCE} (both runs of every pair are equal)"
        most = max(-self.evidence.low, self.evidence.high)
        if math.isinf(most):
            return f"{NO_DIFFERENCE} (it takes {fewest(self.plan.level)} pairs at least to show one)"
        return f"{NO_DIFFERENCE} (smaller than {most:.3g})"


def differences(plan: Plan, pairs: Sequence[Pair]) -> list[float]:
    """Returns the figure of the other run of each pair less that of the first.

    Where one run of a pair diverged, it is worse by the largest difference of the pairs of which none did, or by 1
    without such a pair. Two runs that diverged are equal.
    """
    whole = [pair.other - pair.first for pair in pairs if pair.first is not None and pair.other is not None]
    largest = max(map(abs, whole), default=0.0) or 1.0
    worse = -largest if plan.better == "higher" else largest
    return [
        pair.other - pair.first
        if pair.first is not None and pair.other is not None
        else worse * ((pair.other is None) - (pair.first is None))
        for pair in pairs
    ]


def judge(plan: Plan, pairs: Sequence[Pair], stopped: str = "") -> Verdict:
    """Returns what the pairs say; there must be one."""
    found = evidence(differences(plan, pairs), plan.level)
    up = BETTER if plan.better == "higher" else WORSE
    down = WORSE if up == BETTER else BETTER
    verdict = up if found.low > 0 else down if found.high < 0 else NO_DIFFERENCE
    return Verdict(plan, list(pairs), verdict, found, stopped)


def write(verdict: Verdict, workdir: Path) -> None:
    """Writes verdict.json and table.csv, a row for each pair.

    Raises:
      UserError: they cannot be written.
    """
    plan, pairs = verdict.plan, verdict.pairs
    rows = [
        {
            "first_seed": pair.seeds[0],
            "other_seed": pair.seeds[1],
            "first": "diverged" if pair.first is None else pair.first,
            "other": "diverged" if pair.other is None else pair.other,
            "difference": difference,
            "p": judge(plan, pairs[: number + 1]).evidence.p,
            "seconds": round(pair.seconds, 3),
        }
        for number, (pair, difference) in enumerate(zip(pairs, differences(plan, pairs), strict=True))
    ]
    try:
        write_atomically(workdir / VERDICT, to_json({**verdict.figures(), "lines": verdict.lines()}, indent=2) + "\n")
        write_atomically(workdir / TABLE, to_csv(rows))
    except OSError as error:
        raise UserError(f"{workdir}: cannot write the verdict: {error.strerror or error}") from None


def _mean(figures: Sequence[float | None]) -> str:
    finite = [figure for figure in figures if figure is not None]
    return f"{statistics.fmean(finite):.4g}" if finite else "none"


def _number(value: float) -> str:
    return f"{value:+.4g}"
