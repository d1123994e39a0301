"""Scores of walks on all problems, beside published scores of eleven kinds of positions."""

import json
from pathlib import Path

from experiments.studies.study import Row, Verdict, chart, dots, listed, mean, table

AHEAD = 6  # problems that the claim needs
RANDOMIZED = 6  # the first published kind with random positions
RESOLVED = 1.0  # points; five lengths of a few strings do not resolve smaller margins
PUBLISHED = json.loads((Path(__file__).parent / "published.json").read_text())
FIGURE = "symbol_accuracy_longer"


def runs_of(rows: list[Row], problem: str) -> list[Row]:
    """Returns a problem's runs with a result, by seed."""
    found = [row for row in rows if row["task.problem"] == problem and FIGURE in row]
    return sorted(found, key=lambda row: row["seed"])


def scores(rows: list[Row], problem: str) -> list[float]:
    """Returns each seed's score in percent."""
    return [100 * row[FIGURE] for row in runs_of(rows, problem)]


def best_published(problem: str) -> tuple[float, str]:
    """Returns the highest published score, and the first kind that has it."""
    figures = PUBLISHED["accuracy"][problem]
    return max(figures), PUBLISHED["kinds"][figures.index(max(figures))]


def margins(rows: list[Row]) -> dict[str, float]:
    """Returns our best seed's margin over the best published kind, for each problem with a result."""
    found = {problem: scores(rows, problem) for problem in PUBLISHED["accuracy"]}
    return {problem: max(each) - best_published(problem)[0] for problem, each in found.items() if each}


def verdicts(rows: list[Row]) -> list[Verdict]:
    clear = sum(margin >= RESOLVED for margin in margins(rows).values())
    return [Verdict(clear, clear >= AHEAD, "if the quoted figures are right")]


def place(margin: float) -> str:
    """Returns the table's word for a margin."""
    if margin > 0:
        return "ahead" if margin >= RESOLVED else "ahead by less than a point"
    return "behind" if margin < 0 else "level"


def tables(rows: list[Row]) -> dict[str, str]:
    found, lines = margins(rows), []
    for problem in PUBLISHED["accuracy"]:
        each = scores(rows, problem)
        figure, kind = best_published(problem)
        quoted = f"{figure:.1f} ({kind})"
        if not each:
            lines.append([problem, "", quoted, ""])
            continue
        lines.append([problem, listed(each, ".1f"), quoted, place(found[problem])])
    header = ["problem", "walks, each seed", "best quoted", "walks are"]
    return {"result": table(header, lines)}


def conclusion(rows: list[Row]) -> list[str]:
    (verdict,), found = verdicts(rows), margins(rows)
    clear = {problem: margin for problem, margin in found.items() if margin >= RESOLVED}
    near = [problem for problem, margin in found.items() if 0 < margin < RESOLVED]
    level = [problem for problem, margin in found.items() if margin == 0]
    slack = sorted(clear.values(), reverse=True)[AHEAD - 1] - RESOLVED
    gains = [max(each[RANDOMIZED:]) - max(each[:RANDOMIZED]) for each in PUBLISHED["accuracy"].values()]
    return [
        f"Walks are at least {RESOLVED:g} point above every quoted kind in {len(clear)} of {len(found)} problems: the "
        f"claim {verdict}.",
        f"It needs {AHEAD}, and keeps them while no quoted figure is too low by more than {slack:.1f} points.",
        f"They are level with the best in {len(level)}, and by less than a point above it in {len(near)}.",
        f"In the quoted figures random positions gain {mean(gains):.2f} points; the abstract says "
        f"{PUBLISHED['read']['mean_gain']}.",
    ]


def draw(path: Path, rows: list[Row]) -> None:
    """Plots the scores of our seeds and of the published kinds, by problem."""
    quoted = [(value, problem) for problem, figures in PUBLISHED["accuracy"].items() for value in figures]
    ours = [(score, problem) for problem in PUBLISHED["accuracy"] for score in scores(rows, problem)]
    lines = [
        dots("published kinds, quoted from memory", quoted, "|", "tab:gray"),
        dots("walks", ours),
    ]
    chart(path, {"": lines}, xlabel="accuracy of symbols beyond the lengths of training, percent", xlim=(0, 102))
