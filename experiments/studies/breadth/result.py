"""Scores of walks on all problems beside the published ones of eleven kinds of positions."""

import json
from pathlib import Path
from statistics import stdev
from typing import Any

from experiments.studies.conclude import Row, effort, mean, table
from fxf.tasks.length.problems import PROBLEMS

AHEAD = 6  # problems of the claim
RESOLVED = 1.0  # points; five lengths of a few strings do not tell smaller margins from none
PUBLISHED = json.loads((Path(__file__).parent / "published.json").read_text())
FIGURE = "symbol_accuracy_longer"
AGAIN: list[Row] = json.loads((Path(__file__).parent / "again.json").read_text())  # results of runs made again


def known(rows: list[Row]) -> list[Row]:
    """Returns rows without their empty cells."""
    return [{name: value for name, value in row.items() if value != ""} for row in rows]


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


def clearly_ahead(rows: list[Row]) -> list[str]:
    """Returns the problems in which walks are above every published kind by what the score resolves."""
    return [problem for problem, margin in margins(rows).items() if margin >= RESOLVED]


def equal(rows: list[Row]) -> list[str]:
    """Returns the points whose runs, made again, have every figure of the table but those of time."""
    first = {row["point"]: row for row in rows}
    return [
        again["point"]
        for again in AGAIN
        if all(
            value == first[again["point"]].get(name)
            for name, value in again.items()
            if "second" not in name and name in rows[0]
        )
    ]


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
    found, above, clear = margins(rows), ahead(rows), clearly_ahead(rows)
    header = ["problem", "seeds", "best seed", "mean ± deviation", "exact match", "best published, quoted", "walks are"]
    lines = [line(rows, problem) for problem in PUBLISHED["accuracy"]]
    level = [problem for problem, margin in found.items() if margin == 0]
    ordered = sorted(found.values(), reverse=True)
    verdict = "**holds**, on condition of the quoted figures" if len(above) >= AHEAD else "**is refuted**"
    rest = "" if all(FIGURE in row for row in rows) else "; there was no time for the other seeds"
    return (
        "Score in percent, and the mean exact match over the longer lengths. The best published kind is the highest of "
        f"eleven; {PUBLISHED['status']}:\n\n{table(header, lines)}\n"
        "![score by problem](plot.png)\n\n## Conclusion\n\n"
        f"- Walks are above every quoted kind in {len(above)} of {len(PROBLEMS)} problems: the claim {verdict}.\n"
        f"- In {len(above) - len(clear)} of these the margin is below {RESOLVED:g} point, which five lengths do not "
        f"resolve ({_listed([problem for problem in above if problem not in clear])}). {len(clear)} remain:"
        f" {_listed(clear)}.\n"
        f"- They are level with the best in {len(level)}: {_listed(level)}.\n"
        f"- At least {AHEAD} problems remain as long as no quoted figure is too low by {ordered[AHEAD - 1]:.1f} points "
        "or more.\n"
        f"- {effort(rows, rest)}\n"
        f"- {len(AGAIN)} runs were made again in another folder ({_listed([_problem(each) for each in AGAIN])}); "
        f"{len(equal(rows))} of them have the same figures to the last digit, those of time aside.\n"
    )


def _problem(row: Row) -> str:
    return str(row["point"]).rpartition("task.problem=")[2]


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
    axes.plot([], [], "|", color="tab:gray", markersize=12, label="published kinds, quoted from memory")
    axes.plot([], [], "|", color="tab:orange", markersize=12, label="randomized ones, likewise")
    axes.set(yticks=range(len(problems)), yticklabels=problems, xlim=(0, 102))
    axes.set_xlabel("accuracy of symbols beyond the lengths of training, percent (higher is better)")
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(frameon=False, loc="outside upper center", ncols=3)
    figure.savefig(path, dpi=150)
