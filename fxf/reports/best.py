"""Which of several runs is the best, by what may be ranked, and the command that goes on from it.

Two groups of runs are ranked by a figure if both score the same data in the same unit. A loss per token has another
unit with another tokenizer; bits per byte or character of the same text have not. The best group is told apart from
another one if the 95 % interval of the difference of their means over seeds leaves out 0 (Welch 1947).
"""

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from fxf.reports import report
from fxf.reports.compare import TOKENIZER, Comparison, Group
from fxf.reports.figures import HIGHER, LOWER
from fxf.reports.run_files import FINISHED

LEVEL = 0.95
PER_TOKEN = r"(.*loss|perplexity|.*accuracy)(/.*)?"  # behind a slash is a source of a mixture
OF_THE_TEXT = r"bits_per_\w+(/.*)?"
MOST_UNKNOWN = 1e-3  # share of tokens; with more, bits leave out too much of the text


def best(values: Mapping[Any, Sequence[float]], better: str) -> tuple[list[Any], str]:
    """Returns the groups with the best mean, and why they are not told apart from the others, or "".

    There is none if there are fewer than two, or all means are equal.

    Args:
      values: a figure of each seed, by group.
      better: `lower` or `higher`.
    """
    means = {group: statistics.fmean(each) for group, each in values.items()}
    if len(set(means.values())) < 2:
        return [], ""
    first = {LOWER: min, HIGHER: max}[better](means.values())
    groups = [group for group, mean in means.items() if mean == first]
    if len(groups) > 1:
        return groups, "others are equal"
    alone = [len(each) < 2 for each in values.values()]
    if any(alone):
        return groups, "one seed each" if all(alone) else "some have one seed"
    others = [each for group, each in values.items() if group != groups[0]]
    apart = all(told_apart(values[groups[0]], each) for each in others)
    return groups, "" if apart else "the seeds differ as much"


def told_apart(one: Sequence[float], other: Sequence[float]) -> bool:
    """Returns whether Welch's interval of the difference of the means leaves out 0; each has two values or more."""
    from scipy.special import stdtrit  # in a third of the time of scipy.stats, for which the comparison would wait

    gap = abs(statistics.fmean(one) - statistics.fmean(other))
    a, b = (statistics.variance(each) / len(each) for each in (one, other))
    if not a + b:
        return gap > 0
    freedom = (a + b) ** 2 / (a**2 / (len(one) - 1) + b**2 / (len(other) - 1))
    return gap > float(stdtrit(freedom, (1 + LEVEL) / 2)) * math.sqrt(a + b)


def why_not_ranked(found: Comparison, name: str) -> str:
    """Returns why the compared runs are not ranked by a figure, or nothing if they are."""
    compared = [entry for entry in found.entries if entry.is_compared]
    if any(name not in entry.figures for entry in compared):
        return "some runs lack it"
    units = {entry.run.record.get("unit") for entry in compared} - {None}
    if re.fullmatch(r"(.*loss|perplexity)(/.*)?", name) and len(units) > 1:
        return "the losses have other units"
    if len({entry.run.record.get("digests", {}).get(TOKENIZER) for entry in compared}) > 1:
        return why_other_tokens(name, max(entry.figures.get("unknown_share") or 0 for entry in compared))
    return ""


def why_other_tokens(name: str, unknown: float) -> str:
    """Returns why runs with other tokenizers are not compared by a figure, or nothing.

    Args:
      unknown: the largest share of tokens that stand for unknown text.
    """
    if re.fullmatch(PER_TOKEN, name):
        return "it is per token, and the tokenizers differ"
    loses_text = unknown > MOST_UNKNOWN and re.fullmatch(OF_THE_TEXT, name)
    return "the tokenizers differ, and one loses text" if loses_text else ""


def ranked(found: Comparison, name: str) -> tuple[list[Group], str]:
    """Returns what `best` does of a figure; a group of which a run has no value is left out."""
    if name not in found.scores or why_not_ranked(found, name):
        return [], ""
    groups = [group for group in found.groups if not group.n_diverged(name)]
    return best({group: seeds for group in groups if (seeds := group.of_seeds(name))}, found.better[name])


def best_groups(found: Comparison, name: str) -> list[Group]:
    """Returns the group that is told apart from all others as the best by a figure, or none."""
    groups, why = ranked(found, name)
    return [] if why else groups


def lines(found: Comparison) -> list[str]:
    """Returns what is not ranked and why, the run that is first and whether it is the best, and how to go on from it.

    The first score by which groups differ decides. There is nothing to say of fewer than two finished runs.
    """
    if sum(entry.run.state == FINISHED for entry in found.entries) < 2:
        return []
    reasons = {entry.name: entry.apart for entry in found.entries if entry.run.state == FINISHED}
    reasons |= {group.label: "a seed diverged" for group in found.groups if group.n_diverged()}
    reasons |= {name: why_not_ranked(found, name) for name in found.scores}
    said = [
        f"not ranked: {', '.join(name for name, each in reasons.items() if each == why)}: {why}"
        for why in dict.fromkeys(filter(None, reasons.values()))
    ]
    for name in found.scores:
        groups, why = ranked(found, name)
        if groups:
            sign = 1 if found.better[name] == HIGHER else -1
            entries = [entry for entry in groups[0].entries if entry.is_compared]
            run = max(entries, key=lambda entry: sign * (entry.figures[name] or 0)).run
            first = {LOWER: "lowest", HIGHER: "highest"}[found.better[name]]
            which = f"{first} {name} ({why}: not told apart)" if why else f"best {name}"
            again = report.command(run.record, str(run.folder))
            return [*said, f"{which}: {run.folder}", f"to go on from it: {again}"]
    return said or ["not ranked: no score tells a run from the others"]
