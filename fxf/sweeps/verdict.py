"""The verdict of a trial, as lines, JSON, a table and a page."""

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
from fxf.sweeps.evidence import CALM_AT, LEVELS, Evidence, Figures, claim_holds, differences, evidence
from fxf.sweeps.plan import RATE, Plan, read_plan
from fxf.sweeps.points import TABLE
from fxf.sweeps.settle import Settled

VERDICT, PAGE = "verdict.json", "trial.html"
BETTER, WORSE = "better", "worse"
NOT_BRACKETED, UNEVEN, UNDECIDED = "undecided: not bracketed", "undecided: too uneven", "undecided"
RATE_DECIDES, UNCHECKED = "undecided: the rate decides", "undecided: not yet checked at other rates"
NO_DIFFERENCE, NO_LARGER = "no difference found", "no difference larger than"
ARMS = {"first": "the first config", "other": "the other"}  # names of the arms in the lines
EARLY = "ended early: "  # prefix of `Verdict.stopped` after an early look


class Pair(NamedTuple):
    """Two runs: their seeds, the metric of each (None if it diverged), and their seconds together."""

    seeds: tuple[int, int]
    first: float | None
    other: float | None
    seconds: float


@dataclasses.dataclass(frozen=True, repr=False)
class Verdict:
    """The result of a trial.

    Attributes:
      settled: the settled values of the arms `first` and `other`; empty if the time was over before.
      pairs: all pairs in order.
      stopped: why the trial ended, "" while it goes on.
      checks: the metrics of the worse config at other learning rates, by rate, for the pairs where neither run failed.
    """

    plan: Plan
    settled: Mapping[str, Settled]
    pairs: list[Pair]
    stopped: str = ""
    checks: Mapping[float, list[float | None]] = dataclasses.field(default_factory=dict)

    def __repr__(self) -> str:
        """Returns the lines for a reader: the default would print both configs in a notebook."""
        return "\n".join(self.lines())

    @functools.cached_property
    def outcomes(self) -> list[Figures]:
        """The metrics of all pairs, with None for each run that failed by the plan's rule."""
        return [(self._known(pair.first), self._known(pair.other)) for pair in self.pairs]

    def _known(self, figure: float | None) -> float | None:
        worst, sign = self.plan.failed, 1 if self.plan.better == HIGHER else -1
        return None if figure is None or (worst is not None and sign * figure < sign * worst) else figure

    @property
    def compared(self) -> list[Figures]:
        """The outcomes where neither run failed, or all outcomes if there are none."""
        return [pair for pair in self.outcomes if None not in pair] or self.outcomes

    @functools.cached_property
    def evidence(self) -> Evidence:
        """The evidence of the outcomes."""
        return evidence(self.outcomes)

    @property
    def claim(self) -> int:
        """1 or -1 if the other config's metric is claimed to be above or below the first's, on average or mostly."""
        return self.evidence.mean or self.evidence.signs

    @property
    def worse(self) -> str:
        """The arm that a claim calls worse, `first` or `other`."""
        return "other" if self._way(self.claim) == WORSE else "first"

    def rates_beside(self) -> list[float]:
        """Returns the learning rates beside that of the worse config, at which a claim must hold too.

        With few seeds the search may miss the best rate, and then equal configs would differ by their rates alone.
        """
        if not self.claim or not (tried := self.settled[self.worse].tried):
            return []
        own = [rate for rate, _ in tried].index(self.settled[self.worse].changes[RATE])
        below, above = tried[own - 1], tried[own + 1]  # both exist, because the best rate is bracketed
        return [rate for rate, figure in (below, above) if figure is not None]

    def at(self, rate: float) -> list[Figures]:
        """Returns the compared outcomes, with the worse config's metrics at a checked rate in place of its own."""
        pairs = zip(self.compared, map(self._known, self.checks[rate]), strict=True)
        return [(first, figure) if self.worse == "other" else (figure, other) for (first, other), figure in pairs]

    @property
    def rate_decides(self) -> bool:
        """Whether a claim fails at a checked rate."""
        return not all(claim_holds(self.claim, self.at(rate)) for rate in self.checks)

    @property
    def verdict(self) -> str:
        """The claim about the other config compared with the first, failures aside."""
        evidence = self.evidence
        if not all(settled.bracketed for settled in self.settled.values()):
            return NOT_BRACKETED
        if self.rate_decides:
            return RATE_DECIDES
        if not {*self.rates_beside()} <= {*self.checks}:
            return UNCHECKED
        if evidence.mean:
            return self._way(evidence.mean)
        if evidence.signs:
            return f"{self._way(evidence.signs)} in most seeds"
        if evidence.uneven:
            return UNEVEN
        if evidence.low < evidence.high < math.inf:  # pairs that are all equal bound nothing
            return NO_LARGER
        is_calm = evidence.low == evidence.high or (evidence.calm and evidence.n == CALM_AT)
        return NO_DIFFERENCE if is_calm else UNDECIDED

    @property
    def headline(self) -> str:
        """The verdict with its bound, and the claim about failures."""
        evidence, text = self.evidence, self.verdict
        if text == NO_LARGER:
            text += f" {max(abs(evidence.low), abs(evidence.high)):.3g}"
        if any(evidence.failed) and (text in (BETTER, WORSE) or text.startswith(NO_LARGER)):
            text += " where neither failed"
        if text.endswith("most seeds"):
            text += "; the mean is undecided"
        if evidence.failures:
            often = f"fails {'more' if evidence.failures > 0 else 'less'} often"
            text = often if text == UNDECIDED else f"{text}; {often}"
        return text

    def _way(self, sign: int) -> str:
        return BETTER if (sign > 0) == (self.plan.better == HIGHER) else WORSE

    @property
    def effect(self) -> tuple[float, float, float] | None:
        """The mean effect and the ends of its interval; None after an early end, which overestimates the effect."""
        evidence = self.evidence
        early = self.stopped.startswith(EARLY) and not math.isfinite(evidence.low)
        return None if early else (evidence.effect, evidence.low, evidence.high)

    def figures(self) -> dict[str, Any]:
        """Returns the object of verdict.json. `to_json` writes infinite and nan as null."""
        plan, evidence, known = self.plan, self.evidence, differences(self.outcomes)
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
            "pairs": evidence.n,
            "higher": sum(d > 0 for d in known),
            "lower": sum(d < 0 for d in known),
            "failed": {"first": evidence.failed[0], "other": evidence.failed[1]},
            "failures": evidence.failures,
            "settled": {name: settled._asdict() for name, settled in self.settled.items()},
            "checks": [[rate, figures] for rate, figures in self.checks.items()],
            "seconds": round(sum(pair.seconds for pair in self.pairs), 3),
            "stopped": self.stopped,
            "null": plan.null,
        }

    def lines(self) -> list[str]:
        """Returns a few lines for a reader."""
        plan, evidence = self.plan, self.evidence
        lines = [f"{self.headline}; {self.stopped}"]
        if evidence.n:
            first, other = zip(*self.compared, strict=True)
            figures = f"{plan.metric} {_mean(first)} of the first config, {_mean(other)} of the other"
            seconds = sum(pair.seconds for pair in self.pairs)
            lines = [
                f"{self.headline}: {figures} ({plan.better} is better)",
                self._effect_line(),
                f"{evidence.n} pairs of seeds, {seconds / 60:.{1 if seconds > 60 else 3}f} minutes of runs"
                + (f"; {self.stopped}" if self.stopped else ""),
                self._failures_line(),
            ]
        for name, settled in self.settled.items():
            if settled.tried:
                tried = ", ".join(f"{rate:.4g} {_mean([figure])}" for rate, figure in settled.tried)
                edge = "" if settled.bracketed else ", at the edge: move the config's rate there"
                if all(figure is None for _, figure in settled.tried):
                    edge = ", but a run failed at each rate"
                lines.append(f"rate of {ARMS[name]} {settled.changes[RATE]:.4g}{edge} (tried: {tried})")
            if steps := settled.changes.get("train.steps"):
                lines.append(f"steps of {ARMS[name]} {steps:,}, for equal {plan.match}")
        for rate in self.checks:
            stays = "stays" if claim_holds(self.claim, self.at(rate)) else "falls"
            effects = differences(self.at(rate))
            effect = f"effect {statistics.fmean(effects):+.4g}" if effects else "no run without failure"
            lines.append(f"with the rate {rate:.4g} of {ARMS[self.worse]} the claim {stays}: {effect}")
        named = "was named beforehand" if plan.named else "was not named; it is the task's own first metric"
        lines.append(f"the metric {named}")
        if plan.null:
            lines.append("null trial: both configs are the same, and the two runs of a pair have different seeds")
        return lines

    def _effect_line(self) -> str:
        evidence = self.evidence
        if self.effect is None:
            return "no effect is given, because an early end overestimates it: --whole continues to the last pair"
        if math.isnan(evidence.effect):
            return "no effect: every pair has a failed run"
        if not math.isfinite(evidence.low):
            few = f"at {' or '.join(map(str, LEVELS))} pairs only" if evidence.n < min(LEVELS) else "if few runs fail"
            return f"effect so far {evidence.effect:+.4g}; a mean is claimed {few}"
        note = "; its outcomes are too uneven to tell from 0" if evidence.uneven else ""
        if evidence.low == evidence.high:
            note = "; all pairs are equal, so the interval has no width"
        of = "" if evidence.at == evidence.n else f" of the first {evidence.at} pairs"
        return f"effect {evidence.effect:+.4g}, interval{of} {evidence.low:+.4g} to {evidence.high:+.4g}{note}"

    def _failures_line(self) -> str:
        evidence, worst = self.evidence, self.plan.failed
        what = "not finite" if worst is None else f"not finite, or worse than {worst:g}"
        if any(evidence.failed):
            return f"failed ({what}): {evidence.failed[0]} runs of the first config, {evidence.failed[1]} of the other"
        return f"no run failed ({what}), which does not exclude a rate of {100 * (1 - 0.05 ** (1 / evidence.n)):.0f} %"


def _mean(figures: Sequence[float | None]) -> str:
    finite = [figure for figure in figures if figure is not None]
    return f"{statistics.fmean(finite):.4g}" if finite else "none"


def write(verdict: Verdict, workdir: Path) -> None:
    """Writes verdict.json, the page, and table.csv with a row for each pair."""
    write_atomically(workdir / VERDICT, to_json({**verdict.figures(), "lines": verdict.lines()}, indent=2) + "\n")
    write_atomically(workdir / TABLE, to_csv(_rows(verdict)))
    write_page(f"{workdir.name}: {verdict.headline}", {"": (verdict, workdir)}, workdir)


def write_page(title: str, trials: Mapping[str, tuple[Verdict, Path]], workdir: Path) -> None:
    """Writes the page of several trials. `trials` has the verdict and folder of each, by name."""
    data = [
        {"name": name, "lines": verdict.lines(), "attempts": read_plan(folder)["budgets"]}
        | {"dots": [list(row.values()) for row in _rows(verdict)], **verdict.figures()}
        for name, (verdict, folder) in trials.items()
    ]
    write_atomically(workdir / PAGE, page(title, {"title": title, "trials": data}, ["trial.js"]))


def _rows(verdict: Verdict) -> list[dict[str, Any]]:
    """Returns the rows of table.csv, which are also the dots of the page."""
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
