"""Metrics of answers as texts, by name. The figures that `task.metrics` names join those of the task.

`METRICS["name"] = function` registers another one: `function(answers, references)` takes the answer to each prompt,
list[str], and all its right answers, list[list[str]], and returns a number.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxf.config import key, one_of
from fxf.errors import UserError
from fxf.tasks.prompts import before_end

Metric = Callable[[list[str], list[list[str]]], float]


@dataclasses.dataclass(frozen=True)
class MetricsConfig:
    """The key of the tasks whose answers are compared with texts."""

    metrics: str = key("", "more figures of the answers, names in fxf.tasks.metrics.METRICS with commas between")


def ter(answers: list[str], references: list[list[str]]) -> float:
    """Returns the translation edit rate in percent, the lower the better (Snover et al. 2006), by sacreBLEU."""
    from sacrebleu.metrics import TER  # imported here because it takes a fifth of a second

    return TER().corpus_score(answers, reference_columns(references)).score


METRICS: dict[str, Metric] = {"ter": ter}


def reference_columns(references: list[list[str]]) -> Any:
    """Returns the references as sacreBLEU wants them: the first of every answer, then the second, and so on.

    None stands where an answer has no more references.
    """
    most = max(map(len, references))
    return [[texts[i] if i < len(texts) else None for texts in references] for i in range(most)]


class TextMetrics:
    """The metrics that a config names; `names` are those by which a checkpoint can be chosen, as `Task.metrics`."""

    def __init__(self, config: MetricsConfig, of_task: Sequence[str]) -> None:
        """Raises a UserError where a name is not registered, or is among `of_task`, the task's own figures."""
        self._chosen: dict[str, Metric] = {}
        for name in (part.strip() for part in config.metrics.split(",") if config.metrics):
            self._chosen[name] = METRICS[one_of(name, METRICS, "task.metrics")]
            if name in of_task:
                raise UserError(f"task.metrics: this task has a figure '{name}' of its own; register another name")
        self.names = (*self._chosen, *(f"-{name}" for name in self._chosen))

    def figures(self, answers: list[str], references: list[list[str]]) -> dict[str, float]:
        """Returns each metric, by name, of the answers and the right answers to each prompt."""
        return {name: float(metric(answers, references)) for name, metric in self._chosen.items()}

    def of_tokens(
        self, found_NU: np.ndarray, expected_NU: np.ndarray, end_token: int, to_text: Callable[[str, list[int]], str]
    ) -> dict[str, float]:
        """Returns each metric of decoded tokens and the right ones; `to_text` is that of a task."""
        if not self._chosen:
            return {}
        answers, right = (
            [to_text("", before_end(row, end_token)) for row in tokens_NU.tolist()]
            for tokens_NU in (found_NU, expected_NU)
        )
        return self.figures(answers, [[text] for text in right])
