"""The verdict of a trial: what its pairs say, as lines, as JSON and as a table."""

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fxf.errors import UserError
from fxf.files import to_json, write_atomically
from fxf.reports.figures import HIGHER
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

    @property
    def difference(self) -> float | None:
        """The figure of the other run less that of the first; None if one of them diverged."""
        return None if self.first is None or self.other is None else self.other - self.first


def pair_differences(plan: Plan, pairs: Sequence[Pair]) -> list[float]:
    """Returns the figure of the other run of each pair less that of the first.

    Where one run of a pair diverged, it is worse by the largest difference of the pairs of which none did, or by 1
    without such a pair. Two runs that diverged are equal.
    """
    largest = max((abs(pair.difference) for pair in pairs if pair.difference is not None), default=0.0) or 1.0
    worse = -largest if plan.better == HIGHER else largest
    return [
        worse * ((pair.other is None) - (pair.first is None)) if pair.difference is None else pair.difference
        for pair in pairs
    ]


class Verdict(NamedTuple):
    """What a trial found.

    Attributes:
      evidence: of the differences of the figure, other - first.
      stopped: why the trial ended, or nothing while it goes on.
    """

    plan: Plan
    pairs: list[Pair]
    evidence: Evidence
    stopped: str

    def __repr__(self) -> str:
        """Returns the lines for a reader, where a notebook would print both configs."""
        return "\n".join(self.lines())

    @property
    def verdict(self) -> str:
        """`better`, `worse` or `no difference found`, of the other config compared with the first."""
        if not self.evidence.is_clear:
            return NO_DIFFERENCE
        return BETTER if (self.evidence.low > 0) == (self.plan.better == HIGHER) else WORSE

    @property
    def seconds(self) -> float:
        return sum(pair.seconds for pair in self.pairs)

    def diverged(self) -> tuple[int, int]:
        """Returns how many runs of each arm diverged."""
        return sum(pair.first is None for pair in self.pairs), sum(pair.other is None for pair in self.pairs)

    def figures(self) -> dict[str, Any]:
        """Returns the object of verdict.json, in which `to_json` writes an end that is infinite as null."""
        plan, found = self.plan, self.evidence
        return {
            "verdict": self.verdict,
            "metric": plan.metric,
            "better": plan.better,
            "metric_named_beforehand": plan.named,
            "effect": found.effect,
            "low": found.low,
            "high": found.high,
            "level": plan.level,
            "p": found.p,
            "pairs": found.n,
            "seconds": round(self.seconds, 3),
            "stopped": self.stopped,
            "diverged": dict(zip(("first", "other"), self.diverged(), strict=True)),
            "null": plan.null,
        }

    def lines(self) -> list[str]:
        """Returns a few lines for a reader."""
        plan, found, (n_first, n_other) = self.plan, self.evidence, self.diverged()
        between = f"{found.low:+.4g} to {found.high:+.4g}" if math.isfinite(found.low) else "of all numbers"
        took = f"{self.seconds / 60:.1f} minutes" if self.seconds >= 60 else f"{self.seconds:.1f} seconds"
        first, other = _mean([pair.first for pair in self.pairs]), _mean([pair.other for pair in self.pairs])
        yes = "was named beforehand" if plan.named else "was not named; it is the task's own first figure"
        lines = [
            f"{self._headline()}: {plan.metric} {first} of the first config, {other} of the other "
            f"({plan.better} is better)",
            f"effect {found.effect:+.4g}, {1 - plan.level:.4g} interval {between}",
            f"p {found.p:.2g}: the probability that chance alone makes so clear a difference, however often one looks",
            f"{found.n} pairs of seeds, {took}" + (f"; {self.stopped}" if self.stopped else ""),
            f"the metric {yes}",
        ]
        if n_first or n_other:
            lines.append(
                f"diverged: {n_first} runs of the first config, {n_other} of the other; where one of a pair diverged, "
                "it is worse by the largest difference of the other pairs"
            )
        if plan.null:
            lines.append("null trial: both configs are the same, and the two runs of a pair have different seeds")
        return lines

    def _headline(self) -> str:
        if self.verdict != NO_DIFFERENCE:
            return self.verdict
        if not any(pair_differences(self.plan, self.pairs)):
            return f"{NO_DIFFERENCE} (both runs of every pair are equal)"
        most = max(-self.evidence.low, self.evidence.high)
        if math.isinf(most):
            return f"{NO_DIFFERENCE} (it takes {fewest(self.plan.level)} pairs at least to show one)"
        return f"{NO_DIFFERENCE} (smaller than {most:.3g})"


def _mean(figures: Sequence[float | None]) -> str:
    finite = [figure for figure in figures if figure is not None]
    return f"{statistics.fmean(finite):.4g}" if finite else "none"


def write(verdict: Verdict, workdir: Path) -> None:
    """Writes verdict.json and table.csv, a row for each pair.

    Raises:
      UserError: they cannot be written.
    """
    plan, pairs, rows = verdict.plan, verdict.pairs, []
    for n, (pair, difference) in enumerate(zip(pairs, pair_differences(plan, pairs), strict=True), 1):
        runs = {"first": pair.first, "other": pair.other}
        figures = {name: "diverged" if figure is None else figure for name, figure in runs.items()}
        p = evidence(pair_differences(plan, pairs[:n]), plan.level).p
        seeds = {"first_seed": pair.seeds[0], "other_seed": pair.seeds[1]}
        rows.append({**seeds, **figures, "difference": difference, "p": p, "seconds": round(pair.seconds, 3)})
    try:
        write_atomically(workdir / VERDICT, to_json({**verdict.figures(), "lines": verdict.lines()}, indent=2) + "\n")
        write_atomically(workdir / TABLE, to_csv(rows))
    except OSError as error:
        raise UserError(f"{workdir}: cannot write the verdict: {error.strerror or error}") from None
