"""Scores of kinds of positions on longer strings, beside those of the published table."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments.studies.breadth.result import PUBLISHED
from experiments.studies.conclude import Row, mean, table
from fxf.tasks.length.problems import PROBLEMS

APART = 1.0  # points between quoted figures that are compared
LEARNED = 20.0  # points above a guess from which the lengths of training count as learned in part
N_COLUMNS = 5  # of the picture
N_FIRST = 5  # problems of a first test; those of later ones stand behind them in the table


class BesideQuoted(NamedTuple):
    """The kinds of a study.

    Attributes:
      names: the published table's name of each kind.
      scores: `scores(rows, problem, kind)` returns the score on longer strings of each seed in percent; with a fourth
        argument, another figure.
    """

    names: Mapping[str, str]
    scores: Callable[..., list[float]]

    def quoted(self, problem: str, kind: str) -> float:
        return PUBLISHED["accuracy"][problem][PUBLISHED["kinds"].index(self.names[kind])]

    def table(self, rows: list[Row]) -> str:
        header = ["problem", "positions", "quoted", "ours, each seed", "ours up to 40", "a guess"]
        lines = [
            [
                problem,
                kind,
                f"{self.quoted(problem, kind):.1f}",
                _listed(self.scores(rows, problem, kind)),
                _listed(self.scores(rows, problem, kind, "symbol_accuracy")),
                f"{guess(problem):.0f}",
            ]
            for problem in problems(rows)
            for kind in self.names
        ]
        return f"Accuracy of symbols beyond 40, and up to it, in percent:\n\n{table(header, lines)}"

    def draw(self, path: Path, rows: list[Row]) -> None:
        """Draws the quoted figure and each of our seeds, by problem and kind."""
        from matplotlib.figure import Figure

        n_rows = -(-len(problems(rows)) // N_COLUMNS)
        figure = Figure(figsize=(9, 2.6 * n_rows), layout="constrained")
        all_axes: Any = figure.subplots(n_rows, N_COLUMNS, squeeze=False)
        for axes in all_axes.flat[len(problems(rows)) :]:
            axes.remove()
        for axes, problem in zip(all_axes.flat, problems(rows), strict=False):
            for i, kind in enumerate(self.names):
                height, label = self.quoted(problem, kind), None if i else "quoted"
                axes.plot(i, height, "_", color="tab:gray", markersize=20, label=label)
                each = self.scores(rows, problem, kind)
                axes.plot([i] * len(each), each, "o", color="tab:blue", alpha=0.6, label=None if i else "ours")
            axes.set_xlim(-0.6, len(self.names) - 0.4)
            axes.set_xticks(range(len(self.names)), self.names, rotation=30, horizontalalignment="right")
            axes.set_title(problem, fontsize=9)
            axes.spines[["top", "right"]].set_visible(False)
        for first_axes in all_axes[:, 0]:
            first_axes.set_ylabel("accuracy of symbols, percent")
        all_axes[0, 0].legend(frameon=False)
        figure.savefig(path, dpi=150)


def problems(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(row["task.problem"] for row in rows))


def of_first_test(rows: list[Row]) -> list[Row]:
    """Returns the runs on the problems of the first test."""
    return [row for row in rows if row["task.problem"] in problems(rows)[:N_FIRST]]


def guess(problem: str) -> float:
    """Returns the accuracy of a guess, in percent."""
    return 100 / len(PROBLEMS[problem].outputs)


def gap_and_span(better: Sequence[float], worse: Sequence[float]) -> tuple[float, float]:
    """Returns the difference of the means of two kinds' scores, and the larger span of their seeds."""
    return mean(better) - mean(worse), max(max(each) - min(each) for each in (better, worse))


def _listed(values: list[float]) -> str:
    return ", ".join(f"{value:.1f}" for value in values)
