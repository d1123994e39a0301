"""What the figures of runs are called, their units, and whether lower or higher is better."""

import re
from collections.abc import Mapping
from typing import NamedTuple

LOWER, HIGHER = "lower", "higher"


class Figure(NamedTuple):
    """A figure's plain label, its unit, and `lower` or `higher` as the better; "" where none is known."""

    label: str
    unit: str = ""
    better: str = ""


# The first pattern that a name matches says what it is. Behind a slash is a source of a mixture.
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
_UPPER = {"bleu": "BLEU", "chrf": "chrF"}


def figure(name: str) -> Figure:
    """Returns what is known of a figure; its label is the name in plain words if there is no other."""
    plain = " ".join(_UPPER.get(word, word) for word in name.split("_"))
    known = next((known for pattern, known in _KNOWN if re.fullmatch(pattern, name)), Figure(""))
    return known._replace(label=known.label or plain)


def better_of(name: str, *said: Mapping[str, str]) -> str:
    """Returns which way a figure is better: as the runs' tasks say where they agree, else as its name says.

    Args:
      said: what each run's config.json says of the figures, by name.

    Of the figures of a mixture's sources, which are many, only those count that the task named, with its test loss.
    """
    validated = re.sub("^test_loss/", "validation_loss/", name)
    if named := {of_run.get(name) or of_run.get(validated) for of_run in said} - {None, ""}:
        return str(named.pop()) if len(named) == 1 else ""
    return "" if "/" in name else figure(name).better


def is_score(name: str) -> bool:
    """Returns whether a figure may say how good a model is.

    A speed also says how busy the machine was, and the loss of training is of other batches in each run, with dropout
    and label smoothing.
    """
    return not re.fullmatch(r".*(_per_second|_per_step|seconds)|mfu|goodput|(train_)?loss", name)
