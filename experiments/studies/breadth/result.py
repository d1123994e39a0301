"""Scores of walks on all problems beside the published ones of eleven kinds of positions."""

import json
from pathlib import Path
from statistics import stdev

from experiments.studies.study import Row, Verdict, chart, dots, mean, table

AHEAD = 6  # problems of the claim
RESOLVED = 1.0  # points; five lengths of a few strings do not tell smaller margins from none
PUBLISHED = json.loads((Path(__file__).parent / "published.json").read_text())
FIGURE = "symbol_accuracy_longer"


def runs_of(rows: list[Row], problem: str) -> list[Row]:
    """Returns the runs of a problem that have a result, by their seeds."""
    found = [row for row in rows if row["task.problem"] == problem and FIGURE in row]
    return sorted(found, key=lambda row: row["seed"])


def scores(rows: list[Row], problem: str) -> list[float]:
    """Returns the score of each seed in percent."""
    return [100 * row[FIGURE] for row in runs_of(rows, problem)]


def best_published(problem: str) -> tuple[float, str]:
    """Returns the highest figure of the published kinds, and the first kind that has it."""
    figures = PUBLISHED["accuracy"][problem]
    return max(figures), PUBLISHED["kinds"][figures.index(max(figures))]


def margins(rows: list[Row]) -> dict[str, float]:
    """Returns by how much our best seed is above the best published kind, of each problem with a result."""
    found = {problem: scores(rows, problem) for problem in PUBLISHED["accuracy"]}
    return {problem: max(each) - best_published(problem)[0] for problem, each in found.items() if each}


def verdicts(rows: list[Row]) -> list[Verdict]:
    clear = sum(margin >= RESOLVED for margin in margins(rows).values())
    return [Verdict(clear, clear >= AHEAD)]


def tables(rows: list[Row]) -> dict[str, str]:
    found, lines = margins(rows), []
    for problem in PUBLISHED["accuracy"]:
        runs, each = runs_of(rows, problem), scores(rows, problem)
        figure, kind = best_published(problem)
        quoted = f"{figure:.1f} ({kind})"
        if not each:
            lines.append([problem, "0", "", "", "", quoted, ""])
            continue
        spread = f"{mean(each):.1f} ± {stdev(each):.1f}" if len(each) > 1 else ""
        exact = mean(run["exact_match_longer"] for run in runs)
        verdict = "ahead" if found[problem] > 0 else "level" if found[problem] == 0 else "behind"
        best = f"{max(each):.1f}" if max(each) <= 99.9 or max(each) == 100 else f"{max(each):.3f}"
        lines.append([problem, str(len(each)), best, spread, f"{exact:.3g}", quoted, verdict])
    header = ["problem", "seeds", "best seed", "mean ± deviation", "exact match", "best published, quoted", "walks are"]
    return {"result": table(header, lines)}


def draw(path: Path, rows: list[Row]) -> None:
    """Draws the scores of our seeds and of the published kinds, by problem."""
    quoted = [(value, problem) for problem, figures in PUBLISHED["accuracy"].items() for value in figures]
    ours = [(score, problem) for problem in PUBLISHED["accuracy"] for score in scores(rows, problem)]
    lines = [
        dots("published kinds, quoted from memory", quoted, "|", "tab:gray"),
        dots("walks", ours),
    ]
    chart(path, {"": lines}, xlabel="accuracy of symbols beyond the lengths of training, percent", xlim=(0, 102))
