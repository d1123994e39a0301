"""Metrics that compare answers with reference texts. The key `task.metrics` adds them to the figures of a task.

A metric of a user's own is named by its path, as `my_file:function`; its figure is `function`. `function(answers,
references)` returns a number, given the answer to each prompt, list[str], and all right answers to it, list[list[str]].
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from fxf.config import Choices, key, one_of

Metric = Callable[[list[str], list[list[str]]], float]


@dataclasses.dataclass(frozen=True)
class MetricsConfig:
    """The key of the tasks whose answers are compared with reference texts."""

    metrics: str = key(
        "",
        "more metrics of the answers: names in fxf.tasks.text_metrics.METRICS or module:function, separated by commas",
    )


def ter(answers: list[str], references: list[list[str]]) -> float:
    """Returns sacreBLEU's translation edit rate in percent (Snover et al. 2006). Lower is better."""
    from sacrebleu.metrics import TER  # imported here because it takes a fifth of a second

    return TER().corpus_score(answers, reference_columns(references)).score


METRICS: Choices[Metric] = Choices({"ter": ter})


def reference_columns(references: list[list[str]]) -> Any:
    """Returns the references in sacreBLEU's order: the first one of every answer, then the second, and so on.

    An answer with fewer references has None in the other places.
    """
    n_columns = max(map(len, references))
    return [[texts[i] if i < len(texts) else None for texts in references] for i in range(n_columns)]


def paired_bootstrap(
    answers: list[str], baseline: list[str], references: list[list[str]], tokenized: bool = False
) -> dict[str, float]:
    """Returns BLEU and chrF of a baseline on the same prompts, and the p-values of the differences from it.

    A p-value is that of sacreBLEU's paired bootstrap with 1,000 samples (Koehn 2004): how probable so large a
    difference is if the systems are equally good.

    Args:
      tokenized: whether the text is tokenized already, so that BLEU counts its words as they are.
    """
    from sacrebleu.metrics import BLEU, CHRF  # imported here because it takes a fifth of a second
    from sacrebleu.significance import PairedTest

    metrics = {"bleu": BLEU(tokenize="none" if tokenized else "13a", force=tokenized), "chrf": CHRF()}
    systems: list[tuple[str, Sequence[str]]] = [("baseline", baseline), ("answers", answers)]
    found: Any = PairedTest(systems, metrics, reference_columns(references), test_type="bs")()[1]
    figures: dict[str, float] = {}
    for name, (of_baseline, of_answers) in zip(metrics, [found["BLEU"], found["chrF2"]], strict=True):
        figures |= {f"baseline_{name}": float(of_baseline.score), f"{name}_p_value": float(of_answers.p_value)}
    return figures


class TextMetrics:
    """The metrics that a config names. A checkpoint can be chosen by their `names`, as by `Task.metrics`."""

    def __init__(self, config: MetricsConfig) -> None:
        """Raises a UserError if a name is not registered."""
        paths = [path.strip() for path in config.metrics.split(",") if config.metrics]
        self.chosen = {path.rpartition(":")[2]: METRICS[one_of(path, METRICS, "task.metrics")] for path in paths}
        self.names = (*self.chosen, *(f"-{name}" for name in self.chosen))

    def figures(self, answers: list[str], references: list[list[str]]) -> dict[str, float]:
        """Returns each metric by name, given the answer and the right answers to each prompt."""
        return {name: float(metric(answers, references)) for name, metric in self.chosen.items()}
