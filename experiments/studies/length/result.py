"""Exact match at 500 symbols of each problem, by walks and by rotary positions."""

from pathlib import Path
from typing import Any

from experiments.studies.conclude import Row, mean, table

CLAIMED = (
    *("reverse_string", "duplicate_string", "odds_first", "stack_manipulation"),
    *("parity", "even_pairs", "missing_duplicate", "cycle_navigation"),
)
BOUND, SEEDS = 0.99, 4
FIGURES = ("exact_match", "exact_match_500", "token_accuracy", "token_accuracy_500")


def runs_of(rows: list[Row], problem: str, positions: str) -> list[Row]:
    found = [row for row in rows if row["task.problem"] == problem and row["model.positions"] == positions]
    return sorted(found, key=lambda row: row["seed"])


def shown(values: list[float]) -> str:
    """Returns one number if all are equal, and all of them otherwise."""
    texts = [f"{value:.4g}" for value in values]
    return texts[0] if len(set(texts)) == 1 else ", ".join(texts)


def line(rows: list[Row], problem: str, positions: str) -> list[str]:
    runs = runs_of(rows, problem, positions)
    cells = [shown([run[name] for run in runs]) for name in FIGURES]
    return [problem, positions, str(len(runs)), *cells]


def is_solved(rows: list[Row], problem: str) -> bool:
    return sum(run["exact_match_500"] >= BOUND for run in runs_of(rows, problem, "walks")) >= SEEDS


def highest(rows: list[Row], positions: str) -> float:
    """Returns the highest exact match at 500 with a kind of positions, among the problems of the claim."""
    return max(run["exact_match_500"] for problem in CLAIMED for run in runs_of(rows, problem, positions))


def text(rows: list[Row]) -> str:
    problems = list(dict.fromkeys(row["task.problem"] for row in rows))
    others = [problem for problem in problems if problem not in CLAIMED]
    header = ["problem", "positions", "seeds", "at most 40", "500", "symbols at most 40", "symbols at 500"]
    lines = [line(rows, problem, kind) for problem in CLAIMED for kind in ("walks", "rotary")]
    lines += [line(rows, problem, "walks") for problem in others]
    held = [problem for problem in CLAIMED if is_solved(rows, problem)]
    verdict = "**holds**" if held == list(CLAIMED) else "**is refuted**" if len(held) < SEEDS else "**holds in part**"
    lower = [problem for problem in CLAIMED if _mean(rows, problem, "rotary") < _mean(rows, problem, "walks")]
    right = [problem for problem in others if _mean(rows, problem, "walks") >= BOUND]
    learned = [problem for problem in others if _mean(rows, problem, "walks", "exact_match") >= BOUND]
    return (
        f"Exact match of whole answers, of each seed where seeds differ:\n\n{table(header, lines)}\n"
        "![exact match by problem](plot.png)\n\n"
        "## Conclusion\n\n"
        f"- {len(held)} of {len(CLAIMED)} problems have exact match of at least {BOUND} at 500 in {SEEDS} of five "
        f"seeds: the claim {verdict}.\n"
        f"- Rotary positions are lower at 500 in {len(lower)} of these {len(CLAIMED)}: at most "
        f"{highest(rows, 'rotary'):.2g}.\n"
        f"- The other {len(others)} problems have one seed. Up to 40 symbols {BOUND} is reached by: {_listed(learned)}"
        f"; at 500 by: {_listed(right)}.\n"
    )


def _mean(rows: list[Row], problem: str, positions: str, name: str = "exact_match_500") -> float:
    return mean([run[name] for run in runs_of(rows, problem, positions)])


def _listed(problems: list[str]) -> str:
    return ", ".join(problems) if problems else "none"


def draw(path: Path, rows: list[Row]) -> None:
    """Draws exact match at 500 symbols: a dot for each run, a row for each problem."""
    from matplotlib.figure import Figure

    problems = list(dict.fromkeys(row["task.problem"] for row in rows))[::-1]
    figure = Figure(figsize=(7, 4.6), layout="constrained")
    axes: Any = figure.add_subplot()
    for kind, color, marker in (("rotary", "tab:red", "x"), ("walks", "tab:blue", "o")):
        dots = [(run["exact_match_500"], i) for i, name in enumerate(problems) for run in runs_of(rows, name, kind)]
        axes.plot(*zip(*dots, strict=True), marker, color=color, label=kind, alpha=0.7)
    axes.set(yticks=range(len(problems)), yticklabels=problems, xlim=(-0.03, 1.03))
    axes.set_xlabel("exact match at 500 symbols, trained on at most 40 (higher is better)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    axes.legend(frameon=False, loc="lower center")
    figure.savefig(path, dpi=150)
