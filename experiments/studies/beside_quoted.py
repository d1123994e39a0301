"""Scores of kinds of positions on longer strings, beside those of the published table."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from experiments.studies.breadth.result import PUBLISHED
from experiments.studies.study import Line, Row, chart, dots, listed, mean, table
from fxf.runs.configs import folder
from fxf.runs.guests import load

PROBLEMS = load(folder() / "studies/problems.py").PROBLEMS
APART = 1.0  # points between quoted figures that are compared
LEARNED = 20.0  # points above a guess from which the lengths of training count as learned in part
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
        """Returns the accuracy of symbols beyond the lengths of training, and up to them, in percent."""
        header = ["problem", "positions", "quoted", "ours, each seed", "ours up to 40", "a guess"]
        lines = []
        for problem, kind in ((problem, kind) for problem in problems(rows) for kind in self.names):
            ours = [listed(self.scores(rows, problem, kind, *figure), ".1f") for figure in ((), ("symbol_accuracy",))]
            lines.append([problem, kind, f"{self.quoted(problem, kind):.1f}", *ours, f"{guess(problem):.0f}"])
        return table(header, lines)

    def draw(self, path: Path, rows: list[Row]) -> None:
        """Draws the quoted figure and each of our seeds, by problem and kind."""
        panels = {}
        for problem in problems(rows):
            ours = [(kind, score) for kind in self.names for score in self.scores(rows, problem, kind)]
            quoted = [self.quoted(problem, kind) for kind in self.names]
            panels[problem] = [Line("quoted", [*self.names], quoted, "_", "tab:gray"), dots("ours", ours)]
        chart(path, panels, columns=5, ylabel="accuracy, percent")


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
