"""Scores of walks on all problems beside the published ones of eleven kinds of positions."""

import json
from pathlib import Path
from statistics import stdev
from typing import Any

from experiments.studies.conclude import Row, mean, table
from fxf.tasks.length.problems import PROBLEMS

AHEAD = 6  # problems of the claim
PUBLISHED = json.loads((Path(__file__).parent / "published.json").read_text())
FIGURE = "symbol_accuracy_longer"


def runs_of(rows: list[Row], problem: str) -> list[Row]:
    """Returns the runs of a problem that have a result, by their seeds."""
    return sorted(
        (row for row in rows if row["task.problem"] == problem and FIGURE in row), key=lambda row: row["seed"]
    )


def scores(rows: list[Row], problem: str) -> list[float]:
    """Returns the score of each seed in percent."""
    return [100 * row[FIGURE] for row in runs_of(rows, problem)]


def best_published(problem: str) -> tuple[float, str]:
    """Returns the highest figure of the published kinds, and the first kind that has it."""
    figures = PUBLISHED["accuracy"][problem]
    return max(figures), PUBLISHED["kinds"][figures.index(max(figures))]


def margins(rows: list[Row]) -> dict[str, float]:
    """Returns by how much our best seed is above the best published kind, of each problem with a result."""
    found = {problem: scores(rows, problem) for problem in PROBLEMS}
    return {problem: max(each) - best_published(problem)[0] for problem, each in found.items() if each}


def ahead(rows: list[Row]) -> list[str]:
    """Returns the problems in which walks are above every published kind."""
    return [problem for problem, margin in margins(rows).items() if margin > 0]


def line(rows: list[Row], problem: str) -> list[str]:
    runs, each = runs_of(rows, problem), scores(rows, problem)
    figure, kind = best_published(problem)
    if not each:
        return [problem, "0", "", "", "", f"{figure:.1f} ({kind})", ""]
    spread = f"{mean(each):.1f} ± {stdev(each):.1f}" if len(each) > 1 else ""
    exact = mean([run["exact_match_longer"] for run in runs])
    verdict = "ahead" if max(each) > figure else "level" if max(each) == figure else "behind"
    return [problem, str(len(each)), _percent(max(each)), spread, f"{exact:.3g}", f"{figure:.1f} ({kind})", verdict]


def _percent(value: float) -> str:
    """Returns a percentage; only 100 itself reads as 100."""
    return f"{value:.1f}" if value <= 99.9 or value == 100 else f"{value:.3f}"


def text(rows: list[Row]) -> str:
    found, above = margins(rows), ahead(rows)
    header = ["problem", "seeds", "best seed", "mean ± deviation", "exact match", "best published, quoted", "walks are"]
    lines = [line(rows, problem) for problem in PUBLISHED["accuracy"]]
    level = [problem for problem, margin in found.items() if margin == 0]
    ordered = sorted(found.values(), reverse=True)
    verdict = "**holds**, on condition of the quoted figures" if len(above) >= AHEAD else "**is refuted**"
    missing = [row["point"] for row in rows if FIGURE not in row]
    hours = sum(row["wall_seconds"] for row in rows if "wall_seconds" in row) / 3600
    return (
        "Score in percent, and the mean exact match over the longer lengths. The best published kind is the highest of "
        f"eleven; {PUBLISHED['status']}:\n\n{table(header, lines)}\n"
        "![score by problem](plot.png)\n\n## Conclusion\n\n"
        f"- Walks are above every quoted kind in {len(above)} of {len(PROBLEMS)} problems: the claim {verdict}.\n"
        f"- They are level with the best in {len(level)}: {_listed(level)}.\n"
        f"- At least {AHEAD} problems remain as long as no quoted figure is too low by {ordered[AHEAD - 1]:.1f} points "
        "or more.\n"
        f"- {len(rows) - len(missing)} of {len(rows)} runs have a result"
        + (f"; without one: {_listed(missing)}.\n" if missing else ".\n")
        + f"- The runs took {hours:.1f} hours, one after another, on two cores that other programs used too.\n"
    )


def _listed(names: list[str]) -> str:
    return ", ".join(names) if names else "none"


def draw(path: Path, rows: list[Row]) -> None:
    """Draws the scores of our seeds and of the published kinds, a row for each problem."""
    from matplotlib.figure import Figure

    problems = list(PUBLISHED["accuracy"])[::-1]
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes: Any = figure.add_subplot()
    for i, problem in enumerate(problems):
        for kind, value in zip(PUBLISHED["kinds"], PUBLISHED["accuracy"][problem], strict=True):
            color = "tab:orange" if kind.startswith("randomized") else "tab:gray"
            axes.plot(value, i, "|", color=color, markersize=12)
        each = scores(rows, problem)
        axes.plot(each, [i] * len(each), "o", color="tab:blue", alpha=0.6, label="walks" if not i else None)
    axes.plot([], [], "|", color="tab:gray", markersize=12, label="published kinds, quoted")
    axes.plot([], [], "|", color="tab:orange", markersize=12, label="randomized ones, quoted")
    axes.set(yticks=range(len(problems)), yticklabels=problems, xlim=(0, 102))
    axes.set_xlabel("accuracy of symbols beyond the lengths of training, percent (higher is better)")
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower left")
    figure.savefig(path, dpi=150)
