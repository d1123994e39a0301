"""Three kinds of positions on longer strings: our scores, the quoted ones, and the pairs that they rank alike."""

import itertools
from pathlib import Path
from typing import Any

from experiments.studies.breadth.result import FIGURE, PUBLISHED, effort
from experiments.studies.conclude import Row, mean, table
from fxf.tasks.length.problems import PROBLEMS

NAMES = {"none": "none", "sinusoidal": "sin/cos", "alibi": "ALiBi"}  # ours, and the table's
APART, NEEDED = 1.0, 4  # points between quoted figures that are judged; problems of the claim
LEARNED = 20.0  # points above a guess from which the lengths of training count as learned in part


def quoted(problem: str, kind: str) -> float:
    return PUBLISHED["accuracy"][problem][PUBLISHED["kinds"].index(NAMES[kind])]


def scores(rows: list[Row], problem: str, kind: str, figure: str = FIGURE) -> list[float]:
    """Returns a figure of each seed with a result, in percent."""
    found = [row for row in rows if row["task.problem"] == problem and row["model.positions"] == kind]
    return [100 * row[figure] for row in sorted(found, key=lambda row: row["seed"]) if figure in row]


def judged(rows: list[Row], problem: str) -> dict[tuple[str, str], str]:
    """Returns reproduced, contradicted or open for each pair of kinds, the better one first, that is judged.

    A pair with a kind of fewer than two seeds is "not run".
    """
    found = {}
    for pair in itertools.permutations(NAMES, 2):
        if quoted(problem, pair[0]) - quoted(problem, pair[1]) < APART:
            continue
        better, worse = (scores(rows, problem, kind) for kind in pair)
        if min(len(better), len(worse)) < 2:
            found[pair] = "not run"
            continue
        gap, span = mean(better) - mean(worse), max(max(each) - min(each) for each in (better, worse))
        found[pair] = "reproduced" if gap > span else "contradicted" if -gap > span else "open"
    return found


def reproduced(rows: list[Row]) -> list[str]:
    """Returns the problems whose ranking is reproduced."""
    verdicts = {problem: list(judged(rows, problem).values()) for problem in problems(rows)}
    return [name for name, each in verdicts.items() if "reproduced" in each and "contradicted" not in each]


def problems(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(row["task.problem"] for row in rows))


def guess(problem: str) -> float:
    return 100 / len(PROBLEMS[problem].outputs)


def explained(rows: list[Row], problem: str) -> str:
    """Returns why a ranking is not reproduced, as far as the lengths of training tell."""
    known = {kind: scores(rows, problem, kind, "symbol_accuracy") for kind in NAMES}
    means = {kind: mean(each) for kind, each in known.items() if each}
    if not means:
        return f"{problem} was not run, for want of time"
    if max(means.values()) - guess(problem) < LEARNED:
        return (
            f"{problem}: no kind learned the lengths of training, with {min(means.values()):.1f} to "
            f"{max(means.values()):.1f} where a guess has {guess(problem):.0f}, so this training is too short to rank"
        )
    against = [f"{a} over {b}" for (a, b), verdict in judged(rows, problem).items() if verdict == "contradicted"]
    learned = ", ".join(f"{kind} {value:.1f}" for kind, value in means.items())
    return (
        f"{problem}: up to 40 symbols the kinds have {learned}; contradicted beyond: {', '.join(against) or 'none'}. "
        "Two seeds of a short training are compared with the best of thirty long ones"
    )


def text(rows: list[Row]) -> str:
    header = ["problem", "positions", "quoted", "ours, each seed", "ours up to 40", "a guess"]
    lines = [
        [
            problem,
            kind,
            f"{quoted(problem, kind):.1f}",
            _listed(scores(rows, problem, kind)),
            _listed(scores(rows, problem, kind, "symbol_accuracy")),
            f"{guess(problem):.0f}",
        ]
        for problem in problems(rows)
        for kind in NAMES
    ]
    pairs = [
        [problem, f"{better} over {worse}", verdict]
        for problem in problems(rows)
        for (better, worse), verdict in judged(rows, problem).items()
    ]
    held = reproduced(rows)
    verdict = "**holds**, on condition of the quoted figures" if len(held) >= NEEDED else "**does not hold**"
    return (
        "Accuracy of symbols beyond 40, and up to it, in percent:\n\n"
        f"{table(header, lines)}\n{table(['problem', 'pair', 'here'], pairs)}\n"
        "![accuracy by problem and kind](plot.png)\n\n## Conclusion\n\n"
        f"- The ranking of {len(held)} of {len(problems(rows))} problems is reproduced ({', '.join(held) or 'none'}): "
        f"the claim {verdict}.\n"
        + "".join(f"- {explained(rows, problem)}.\n" for problem in problems(rows) if problem not in held)
        + f"- {effort(rows)}\n"
    )


def _listed(values: list[float]) -> str:
    return ", ".join(f"{value:.1f}" for value in values)


def draw(path: Path, rows: list[Row]) -> None:
    """Draws the quoted figure and each of our seeds, by problem and kind."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3), layout="constrained")
    all_axes: Any = figure.subplots(1, len(problems(rows)))
    for axes, problem in zip(all_axes, problems(rows), strict=True):
        for i, kind in enumerate(NAMES):
            axes.plot(i, quoted(problem, kind), "_", color="tab:gray", markersize=20, label=None if i else "quoted")
            each = scores(rows, problem, kind)
            axes.plot([i] * len(each), each, "o", color="tab:blue", alpha=0.6, label=None if i else "ours")
        axes.set(xticks=range(len(NAMES)), xticklabels=NAMES, xlim=(-0.6, len(NAMES) - 0.4))
        axes.set_title(problem, fontsize=9)
        axes.tick_params(axis="x", labelrotation=30)
        axes.spines[["top", "right"]].set_visible(False)
    all_axes[0].set_ylabel("accuracy of symbols, percent")
    all_axes[0].legend(frameon=False)
    figure.savefig(path, dpi=150)
