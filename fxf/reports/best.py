"""The best of several runs, where they can be ranked, and the command that starts a new run from it.

Runs are ranked by a metric if they score the same data in the same unit. The unit of a loss per token depends on the
tokenizer; that of bits per byte or character of the same text does not. The best group of runs differs from another if
the 95 % confidence interval of the difference of their means over seeds excludes 0 (Welch 1947).
"""

import math
import re
import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fxf.reports import report
from fxf.reports.compare import TOKENIZER, Comparison, Group
from fxf.reports.figures import HIGHER, LOWER
from fxf.reports.run_files import FINISHED

LEVEL = 0.95
OF_LOSS = r"(.*loss|perplexity|bits_per_\w+)(/.*)?"  # a model whose loss is not in nats has no bits
PER_TOKEN = r"(.*loss|perplexity|.*accuracy)(/.*)?"  # a source of a mixture follows the slash
MOST_UNKNOWN = 1e-3  # share of tokens; with more, bits per byte cover too little of the text


def best(values: Mapping[Any, Sequence[float]], better: str) -> tuple[list[Any], str]:
    """Returns the groups with the best mean, and why they do not clearly differ from the others, "" if they do.

    With fewer than two groups, or if all means are equal, no group is the best.

    Args:
      values: a metric of each seed, by group.
      better: `lower` or `higher`.
    """
    means = {group: statistics.fmean(seeds) for group, seeds in values.items()}
    if len(set(means.values())) < 2:
        return [], ""
    first = {LOWER: min, HIGHER: max}[better](means.values())
    groups = [group for group, mean in means.items() if mean == first]
    if len(groups) > 1:
        return groups, "others are equal"
    single = [len(seeds) < 2 for seeds in values.values()]
    if any(single):
        return groups, "one seed each" if all(single) else "some have one seed"
    others = [seeds for group, seeds in values.items() if group != groups[0]]
    is_clear = all(differ_clearly(values[groups[0]], seeds) for seeds in others)
    return groups, "" if is_clear else "the seeds differ as much"


def differ_clearly(one: Sequence[float], other: Sequence[float]) -> bool:
    """Returns whether Welch's interval of the difference of the means excludes 0. Both have at least two values."""
    from scipy.special import stdtrit  # imports in a third of the time of scipy.stats

    gap = abs(statistics.fmean(one) - statistics.fmean(other))
    a, b = (statistics.variance(values) / len(values) for values in (one, other))
    if not a + b:
        return gap > 0
    freedom = (a + b) ** 2 / (a**2 / (len(one) - 1) + b**2 / (len(other) - 1))
    return gap > float(stdtrit(freedom, (1 + LEVEL) / 2)) * math.sqrt(a + b)


def why_not_ranked(runs: Comparison, name: str) -> str:
    """Returns why the compared runs cannot be ranked by a metric, "" if they can."""
    compared = [entry for entry in runs.entries if entry.is_compared]
    if any(name not in entry.figures for entry in compared):
        return "some runs lack it"
    units = {entry.run.record.get("unit") for entry in compared} - {None}
    tokenizers = {entry.run.record.get("digests", {}).get(TOKENIZER) for entry in compared}
    unknown = max((entry.figures.get("unknown_share") or 0 for entry in compared), default=0)
    return why_not_alike(name, units, tokenizers, unknown)


def why_not_alike(name: str, units: Collection[Any], tokenizers: Collection[Any], unknown: float) -> str:
    """Returns why runs with these units of losses and these tokenizers cannot be compared by a metric, "" if they can.

    Args:
      unknown: the largest share of unknown tokens.
    """
    if re.fullmatch(OF_LOSS, name) and len(units) > 1:
        return "the losses have different units"
    if len(tokenizers) < 2:
        return ""
    if re.fullmatch(PER_TOKEN, name):
        return "it is per token, and the tokenizers differ"
    loses_text = unknown > MOST_UNKNOWN and re.fullmatch(r"bits_per_\w+(/.*)?", name)
    return "the tokenizers differ, and one loses text" if loses_text else ""


def ranked(runs: Comparison, name: str) -> tuple[list[Group], str]:
    """Returns `best` of the groups by a metric. Groups in which a run has no value are left out."""
    if name not in runs.scores or why_not_ranked(runs, name):
        return [], ""
    groups = [group for group in runs.groups if not group.n_diverged(name)]
    return best({group: seeds for group in groups if (seeds := group.seed_values(name))}, runs.better[name])


def best_groups(runs: Comparison, name: str) -> list[Group]:
    """Returns the group that is clearly the best by a metric, if there is one."""
    groups, why = ranked(runs, name)
    return [] if why else groups


def lines(runs: Comparison) -> list[str]:
    """Returns lines for a reader: what is not ranked and why, the best run, and how to start a new run from it.

    The first score by which groups differ decides. With fewer than two finished runs there are no lines.
    """
    if sum(entry.run.state == FINISHED for entry in runs.entries) < 2:
        return []
    reasons = {entry.name: entry.difference for entry in runs.entries if entry.run.state == FINISHED}
    reasons |= {group.label: "a seed diverged" for group in runs.groups if group.n_diverged()}
    reasons |= {name: why_not_ranked(runs, name) for name in runs.scores}
    unranked = [
        f"not ranked: {', '.join(name for name, reason in reasons.items() if reason == why)}: {why}"
        for why in dict.fromkeys(filter(None, reasons.values()))
    ]
    for name in runs.scores:
        groups, why = ranked(runs, name)
        if groups:
            sign = 1 if runs.better[name] == HIGHER else -1
            entries = [entry for entry in groups[0].entries if entry.is_compared]
            run = max(entries, key=lambda entry: sign * (entry.figures[name] or 0)).run
            first = {LOWER: "lowest", HIGHER: "highest"}[runs.better[name]]
            which = f"{first} {name} ({why}: not told apart)" if why else f"best {name}"
            again = report.command(run.record, str(run.folder))
            return [*unranked, f"{which}: {run.folder}", f"to start a new run from it: {again}"]
    return unranked or ["not ranked: no score tells a run from the others"]
