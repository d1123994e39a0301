"""The labels and units of metrics, and whether lower or higher is better."""

import re
from collections.abc import Mapping
from typing import NamedTuple

LOWER, HIGHER = "lower", "higher"


class Figure(NamedTuple):
    """A metric's plain label, its unit, and which of `lower` and `higher` is better; "" if unknown."""

    label: str
    unit: str = ""
    better: str = ""


# The first pattern that a name matches decides. A source of a mixture follows the slash.
_KNOWN = [
    (r"(train_)?loss", Figure("training loss", "", LOWER)),
    (r"gradient_norm", Figure("norm of the gradient")),
    (r"(.*loss|perplexity|.*error|bits_per_\w+)(/.*)?", Figure("", "", LOWER)),
    (r"(exact_match\w*|.*accuracy|solved)(/.*)?", Figure("", "share", HIGHER)),
    (r"bleu|bleu_lower_case|chrf", Figure("", "of 100", HIGHER)),
    (r"ter", Figure("translation edit rate", "%", LOWER)),
    (r"(\w+)_per_second", Figure("", "", HIGHER)),
    (r"mfu", Figure("model FLOPs utilization", "share", HIGHER)),
    (r"goodput", Figure("share of the time in steps", "share", HIGHER)),
    (r"data_seconds_per_step", Figure("wait for data", "seconds a step", LOWER)),
    (r".*seconds", Figure("", "s", LOWER)),
    (r"device_peak_bytes", Figure("peak of device memory", "bytes")),
    (r"device_bytes", Figure("device memory", "bytes")),
]


def figure(name: str) -> Figure:
    """Returns the label, unit and better direction of a metric. By default, its name in plain words is the label."""
    plain = " ".join({"bleu": "BLEU", "chrf": "chrF"}.get(word, word) for word in name.split("_"))
    known = next((known for pattern, known in _KNOWN if re.fullmatch(pattern, name)), Figure(""))
    return known._replace(label=known.label or plain)


def better_of(name: str, *tasks: Mapping[str, str]) -> str:
    """Returns the better direction of a metric: that of the runs' tasks where they agree, else that of its name.

    The metrics of a mixture's sources have a direction only if the task names them, or names the validation loss of a
    test loss.

    Args:
      tasks: the better direction by metric, as in each run's config.json.
    """
    validated = re.sub("^test_loss/", "validation_loss/", name)
    if named := {better.get(name) or better.get(validated) for better in tasks} - {None, ""}:
        return str(named.pop()) if len(named) == 1 else ""
    return "" if "/" in name else figure(name).better


def is_score(name: str) -> bool:
    """Returns whether a metric measures how good a model is.

    Speeds do not: they depend on the machine's load. The training loss does not: its batches differ between runs, and
    it includes dropout and label smoothing.
    """
    return not re.fullmatch(r".*(_per_second|_per_step|seconds)|mfu|goodput|(train_)?loss", name)
