"""Metrics that compare answers with reference texts. The key `task.metrics` adds them to those of a task.

`my_file:function` names a user's own metric, which is reported as `function`. `function(answers, references)` returns a
number. Its arguments are the answer to each prompt, list[str], and all right answers to each prompt, list[list[str]].
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from fxf.base.config import Choices, key, one_of
from fxf.base.errors import UserError

Metric = Callable[[list[str], list[list[str]]], float]


@dataclasses.dataclass(frozen=True)
class MetricsConfig:
    """The key that all tasks with reference texts have."""

    metrics: str = key("", "more metrics, comma-separated: names in fxf.tasks.text_metrics.METRICS, or module:function")


def ter(answers: list[str], references: list[list[str]]) -> float:
    """Returns sacreBLEU's translation edit rate in percent (Snover et al. 2006). Lower is better."""
    from sacrebleu.metrics import TER  # imported here because it takes a fifth of a second

    return TER().corpus_score(answers, reference_columns(references)).score


METRICS: Choices[Metric] = Choices({"ter": ter})


def reference_columns(references: list[list[str]]) -> Any:
    """Returns the references in sacreBLEU's order: the first reference of every answer, then the second, and so on.

    Missing references are None.
    """
    n_columns = max(map(len, references))
    return [[texts[i] if i < len(texts) else None for texts in references] for i in range(n_columns)]


class TextMetrics:
    """The metrics that a config names. Their `names`, with and without -, extend `Task.metrics`."""

    def __init__(self, config: MetricsConfig, *others: str) -> None:
        """Raises a UserError if a name is not registered, or is that of another metric, such as one of the `others`."""
        paths = [path.strip() for path in config.metrics.split(",") if config.metrics]
        names = [*others, *(path.rpartition(":")[2] for path in paths)]
        if twice := next((name for name in names if names.count(name) > 1), ""):
            raise UserError(f"task.metrics: two metrics have the name '{twice}'; give one of them another")
        self.chosen = {path.rpartition(":")[2]: METRICS[one_of(path, METRICS, "task.metrics")] for path in paths}
        self.names = (*self.chosen, *(f"-{name}" for name in self.chosen))

    def figures(self, answers: list[str], references: list[list[str]]) -> dict[str, float]:
        """Returns each metric by name, given the answer and the right answers to each prompt."""
        return {name: float(metric(answers, references)) for name, metric in self.chosen.items()}
