"""The verdict of a trial: what its pairs say, as lines, as JSON, as a table and as a page."""

import dataclasses
import functools
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fxf.base.files import to_json, write_atomically
from fxf.reports.figures import HIGHER
from fxf.reports.page import page
from fxf.reports.tables import to_csv
from fxf.sweeps.evidence import CALM_AT, LEVELS, Evidence, Figures, differences, evidence, still
from fxf.sweeps.plan import RATE, Plan, read_plan
from fxf.sweeps.points import TABLE
from fxf.sweeps.settle import Settled

VERDICT, PAGE, LOG = "verdict.json", "trial.html", "trial.txt"
BETTER, WORSE = "better", "worse"
NOT_BRACKETED, UNEVEN, UNDECIDED = "undecided: not bracketed", "undecided: too uneven", "undecided"
RATE_DECIDES, UNCHECKED = "undecided: the rate decides", "undecided: not yet checked at other rates"
NO_DIFFERENCE, NO_LARGER = "no difference found", "no difference larger than"
ARMS = {"first": "the first config", "other": "the other"}  # as lines call them
EARLY = "ended early: "  # begins why a look before the last ended a trial


class Pair(NamedTuple):
    """Two runs: their seeds, the figure of each, None if it diverged, and the seconds of both."""

    seeds: tuple[int, int]
    first: float | None
    other: float | None
    seconds: float


@dataclasses.dataclass(frozen=True, repr=False)
class Verdict:
    """What a trial found.

    Attributes:
      settled: what the arms `first` and `other` ran with; empty if the time ended before.
      pairs: all pairs in their order.
      stopped: why the trial ended, or nothing while it goes on.
      checks: by another rate of the config that a claim calls worse, its figures in the pairs where neither failed.
    """

    plan: Plan
    settled: Mapping[str, Settled]
    pairs: list[Pair]
    stopped: str = ""
    checks: Mapping[float, list[float | None]] = dataclasses.field(default_factory=dict)

    def __repr__(self) -> str:
        """Returns the lines for a reader, where a notebook would print both configs."""
        return "\n".join(self.lines())

    @functools.cached_property
    def outcomes(self) -> list[Figures]:
        """The figures of pairs, None of each run that failed by the plan."""
        return [(self._known(pair.first), self._known(pair.other)) for pair in self.pairs]

    def _known(self, figure: float | None) -> float | None:
        worst, sign = self.plan.failed, 1 if self.plan.better == HIGHER else -1
        return None if figure is None or (worst is not None and sign * figure < sign * worst) else figure

    @property
    def compared(self) -> list[Figures]:
        """The outcomes where neither failed, or all if there is none."""
        return [pair for pair in self.outcomes if None not in pair] or self.outcomes

    @functools.cached_property
    def evidence(self) -> Evidence:
        """What the outcomes say."""
        return evidence(self.outcomes)

    @property
    def claim(self) -> int:
        """1 or -1 if the other config's figure is said to be above or below the first's, in the mean or mostly."""
        return self.evidence.mean or self.evidence.signs

    @property
    def worse(self) -> str:
        """The arm that a claim calls worse, `first` or `other`."""
        return "other" if self._way(self.claim) == WORSE else "first"

    def rates_beside(self) -> list[float]:
        """Returns the rates beside that of the worse config, at which a claim must stay.

        Few seeds may miss the best rate, and then two equal configs differ by their rates alone.
        """
        if not self.claim or not (tried := self.settled[self.worse].tried):
            return []
        own = [rate for rate, _ in tried].index(self.settled[self.worse].changes[RATE])
        below, above = tried[own - 1], tried[own + 1]  # both are there: the best rate was not at the edge
        return [rate for rate, figure in (below, above) if figure is not None]

    def at(self, rate: float) -> list[Figures]:
        """Returns the outcomes where neither failed, with those of the worse config at a rate that was checked."""
        pairs = zip(self.compared, map(self._known, self.checks[rate]), strict=True)
        return [(first, figure) if self.worse == "other" else (figure, other) for (first, other), figure in pairs]

    @property
    def rate_decides(self) -> bool:
        """Whether a claim does not stay at a rate that was checked."""
        return not all(still(self.claim, self.at(rate)) for rate in self.checks)

    @property
    def verdict(self) -> str:
        """What is said of the other config compared with the first, without what is said of failures."""
        found = self.evidence
        if not all(settled.bracketed for settled in self.settled.values()):
            return NOT_BRACKETED
        if self.rate_decides:
            return RATE_DECIDES
        if not {*self.rates_beside()} <= {*self.checks}:
            return UNCHECKED
        if found.mean:
            return self._way(found.mean)
        if found.signs:
            return f"{self._way(found.signs)} in most seeds"
        if found.uneven:
            return UNEVEN
        if found.low < found.high < math.inf:  # pairs that are all equal bound nothing
            return NO_LARGER
        is_calm = found.low == found.high or (found.calm and found.n == CALM_AT)
        return NO_DIFFERENCE if is_calm else UNDECIDED

    @property
    def headline(self) -> str:
        """The verdict with its figure, and what is said of failures."""
        found, text = self.evidence, self.verdict
        if text == NO_LARGER:
            text += f" {max(abs(found.low), abs(found.high)):.3g}"
        if any(found.failed) and (text in (BETTER, WORSE) or text.startswith(NO_LARGER)):
            text += " where neither failed"
        if text.endswith("most seeds"):
            text += "; the mean is undecided"
        if found.failures:
            often = f"fails {'more' if found.failures > 0 else 'less'} often"
            text = often if text == UNDECIDED else f"{text}; {often}"
        return text

    def _way(self, sign: int) -> str:
        return BETTER if (sign > 0) == (self.plan.better == HIGHER) else WORSE

    @property
    def effect(self) -> tuple[float, float, float] | None:
        """The mean effect and the ends of its interval; None after a stop before 32 pairs, which shows it too large."""
        found = self.evidence
        early = self.stopped.startswith(EARLY) and not math.isfinite(found.low)
        return None if early else (found.effect, found.low, found.high)

    def figures(self) -> dict[str, Any]:
        """Returns the object of verdict.json, in which `to_json` writes what is infinite or nan as null."""
        plan, found, known = self.plan, self.evidence, differences(self.outcomes)
        effect, low, high = self.effect or (None, None, None)
        return {
            "verdict": self.verdict,
            "headline": self.headline,
            "metric": plan.metric,
            "better": plan.better,
            "metric_named_beforehand": plan.named,
            "effect": effect,
            "low": low,
            "high": high,
            "pairs": found.n,
            "higher": sum(d > 0 for d in known),
            "lower": sum(d < 0 for d in known),
            "failed": {"first": found.failed[0], "other": found.failed[1]},
            "failures": found.failures,
            "settled": {name: settled._asdict() for name, settled in self.settled.items()},
            "checks": [[rate, figures] for rate, figures in self.checks.items()],
            "seconds": round(sum(pair.seconds for pair in self.pairs), 3),
            "stopped": self.stopped,
            "null": plan.null,
        }

    def lines(self) -> list[str]:
        """Returns a few lines for a reader."""
        plan, found = self.plan, self.evidence
        lines = [f"{self.headline}; {self.stopped}"]
        if found.n:
            first, other = zip(*self.compared, strict=True)
            figures = f"{plan.metric} {_mean(first)} of the first config, {_mean(other)} of the other"
            seconds = sum(pair.seconds for pair in self.pairs)
            lines = [
                f"{self.headline}: {figures} ({plan.better} is better)",
                self._effect_line(),
                f"{found.n} pairs of seeds, {seconds / 60:.{1 if seconds > 60 else 3}f} minutes of runs"
                + (f"; {self.stopped}" if self.stopped else ""),
                self._failures_line(),
            ]
        for name, settled in self.settled.items():
            if settled.tried:
                tried = ", ".join(f"{rate:.4g} {_mean([figure])}" for rate, figure in settled.tried)
                edge = "" if settled.bracketed else ", at the edge: move the config's rate there"
                if all(figure is None for _, figure in settled.tried):
                    edge = ", but with each a run failed"
                lines.append(f"rate of {ARMS[name]} {settled.changes[RATE]:.4g}{edge} (tried: {tried})")
            if steps := settled.changes.get("train.steps"):
                lines.append(f"steps of {ARMS[name]} {steps:,}, for equal {plan.match}")
        for rate in self.checks:
            stays = "stays" if still(self.claim, self.at(rate)) else "falls"
            effects = differences(self.at(rate))
            told = f"effect {statistics.fmean(effects):+.4g}" if effects else "no run without failure"
            lines.append(f"with the rate {rate:.4g} of {ARMS[self.worse]} the claim {stays}: {told}")
        named = "was named beforehand" if plan.named else "was not named; it is the task's own first figure"
        lines.append(f"the metric {named}")
        if plan.null:
            lines.append("null trial: both configs are the same, and the two runs of a pair have different seeds")
        return lines

    def _effect_line(self) -> str:
        found = self.evidence
        if self.effect is None:
            return "no effect is given, for an early end shows it too large: --whole goes on to the last pair"
        if math.isnan(found.effect):
            return "no effect, for there is no pair where neither failed"
        if not math.isfinite(found.low):
            few = f"at {' or '.join(map(str, LEVELS))} pairs only" if found.n < min(LEVELS) else "if few runs fail"
            return f"effect so far {found.effect:+.4g}; a mean is claimed {few}"
        note = "; its outcomes are too uneven to tell from 0" if found.uneven else ""
        if found.low == found.high:
            note = "; all pairs are equal, so the interval has no width"
        of = "" if found.n in LEVELS else f" of the first {max(look for look in LEVELS if look < found.n)} pairs"
        return f"effect {found.effect:+.4g}, interval{of} {found.low:+.4g} to {found.high:+.4g}{note}"

    def _failures_line(self) -> str:
        found, worst = self.evidence, self.plan.failed
        what = "not finite" if worst is None else f"not finite, or worse than {worst:g}"
        if any(found.failed):
            return f"failed ({what}): {found.failed[0]} runs of the first config, {found.failed[1]} of the other"
        return f"no run failed ({what}), which does not exclude a rate of {100 * (1 - 0.05 ** (1 / found.n)):.0f} %"


def _mean(figures: Sequence[float | None]) -> str:
    finite = [figure for figure in figures if figure is not None]
    return f"{statistics.fmean(finite):.4g}" if finite else "none"


def write(verdict: Verdict, workdir: Path) -> None:
    """Writes verdict.json, the page, and table.csv with a row for each pair."""
    write_atomically(workdir / VERDICT, to_json({**verdict.figures(), "lines": verdict.lines()}, indent=2) + "\n")
    write_atomically(workdir / TABLE, to_csv(_rows(verdict)))
    write_page(f"{workdir.name}: {verdict.headline}", {"": (verdict, workdir)}, workdir)


def write_page(title: str, trials: Mapping[str, tuple[Verdict, Path]], workdir: Path) -> None:
    """Writes the page of trials, each with its folder, by name."""
    data = [
        {"name": name, "lines": verdict.lines(), "attempts": read_plan(folder)["budgets"]}
        | {"dots": [list(row.values()) for row in _rows(verdict)], **verdict.figures()}
        for name, (verdict, folder) in trials.items()
    ]
    text = page(title, {"title": title, "trials": data}, ["trial.js"])
    write_atomically(workdir / PAGE, text)


def _rows(verdict: Verdict) -> list[dict[str, Any]]:
    """Returns the rows of table.csv, which are the dots of the page too."""
    return [
        {
            "first_seed": pair.seeds[0],
            "other_seed": pair.seeds[1],
            "first": "diverged" if pair.first is None else pair.first,
            "other": "diverged" if pair.other is None else pair.other,
            "difference": next(iter(differences([outcome])), "failed"),
            "seconds": round(pair.seconds, 3),
        }
        for pair, outcome in zip(verdict.pairs, verdict.outcomes, strict=True)
    ]
