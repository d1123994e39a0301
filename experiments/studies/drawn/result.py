"""Drawn and plain positions on longer strings: our scores, the quoted ones, and whether they rank alike."""

from pathlib import Path
from typing import Any

from experiments.studies.breadth.result import FIGURE, PUBLISHED
from experiments.studies.conclude import Row, effort, mean, table
from experiments.studies.ranking.result import LEARNED, guess, problems

DRAWN, ROTARY, SINUSOIDAL = "rotary, drawn", "rotary", "sinusoidal"
NAMES = {DRAWN: "randomized RoPE", ROTARY: "RoPE", SINUSOIDAL: "sin/cos"}  # ours, and the table's
GAP, APART = 5, 1.0  # points that drawn positions are ahead by; points between quoted figures that are compared
NEEDED, N_SEEDS = 4, 3


def quoted(problem: str, kind: str) -> float:
    return PUBLISHED["accuracy"][problem][PUBLISHED["kinds"].index(NAMES[kind])]


def kind_of(row: Row) -> str:
    return DRAWN if row["task.position_range"] else row["model.positions"]


def scores(rows: list[Row], problem: str, kind: str, figure: str = FIGURE) -> list[float]:
    """Returns a figure of each seed with a result, in percent."""
    found = [row for row in rows if row["task.problem"] == problem and kind_of(row) == kind and figure in row]
    return [100 * row[figure] for row in sorted(found, key=lambda row: row["seed"])]


def is_complete(rows: list[Row], problem: str) -> bool:
    return all(len(scores(rows, problem, kind)) == N_SEEDS for kind in NAMES)


def gap(rows: list[Row], problem: str, better: str, worse: str) -> tuple[float, float]:
    """Returns the difference of the means of two kinds, and the larger span of their seeds."""
    each = [scores(rows, problem, kind) for kind in (better, worse)]
    return mean(each[0]) - mean(each[1]), max(max(values) - min(values) for values in each)


def failures(rows: list[Row], problem: str) -> list[str]:
    """Returns the conditions of the test that a problem with all its runs does not meet."""
    found = []
    for kind in (ROTARY, SINUSOIDAL):
        difference, span = gap(rows, problem, DRAWN, kind)
        if difference < GAP or difference <= span:
            found.append(f"the gap to {kind} positions is {difference:.1f} points, and the span of seeds {span:.1f}")
    apart = quoted(problem, ROTARY) - quoted(problem, SINUSOIDAL)
    difference, span = gap(rows, problem, ROTARY, SINUSOIDAL)
    if abs(apart) >= APART and difference * apart < 0 and abs(difference) > span:
        found.append(f"the gap of rotary to sinusoidal positions is {difference:.1f} points, quoted {apart:.1f}")
    known = mean(scores(rows, problem, DRAWN, "symbol_accuracy"))
    if known - guess(problem) < LEARNED:
        found.append(
            f"drawn positions have {known:.1f} on the lengths of training, where a guess has {guess(problem):.0f}"
        )
    return found


def reproduced(rows: list[Row]) -> list[str]:
    """Returns the problems whose ranking is reproduced."""
    return [name for name in problems(rows) if is_complete(rows, name) and not failures(rows, name)]


def text(rows: list[Row]) -> str:
    header = ["problem", "positions", "quoted", "ours, each seed", "ours up to 40, each seed", "a guess"]
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
    held = reproduced(rows)
    verdict = "**holds**, on condition of the quoted figures" if len(held) >= NEEDED else "**does not hold**"
    return (
        f"Accuracy of symbols beyond 40, and up to it, in percent:\n\n{table(header, lines)}\n"
        "![accuracy by problem and kind](plot.png)\n\n## Conclusion\n\n"
        f"- The ranking of {len(held)} of {len(problems(rows))} problems is reproduced ({', '.join(held) or 'none'}): "
        f"the claim {verdict}.\n"
        + "".join(f"- {_told(rows, problem)}.\n" for problem in problems(rows))
        + f"- {effort(rows)}\n"
    )


def _told(rows: list[Row], problem: str) -> str:
    if not is_complete(rows, problem):
        return f"{problem}: not run, or not with all seeds"
    if against := failures(rows, problem):
        return f"{problem}: {'; '.join(against)}"
    ahead = [f"{gap(rows, problem, DRAWN, kind)[0]:.1f} points ahead of {kind} ones" for kind in (ROTARY, SINUSOIDAL)]
    ours, theirs = mean(scores(rows, problem, DRAWN)), quoted(problem, DRAWN)
    return f"{problem}: drawn positions are {' and '.join(ahead)}. Their mean of {ours:.1f} is quoted as {theirs:.1f}"


def _listed(values: list[float]) -> str:
    return ", ".join(f"{value:.1f}" for value in values)


def draw(path: Path, rows: list[Row]) -> None:
    """Draws the quoted figure and each of our seeds, by problem and kind."""
    from matplotlib.figure import Figure

    names = problems(rows)
    figure = Figure(figsize=(2 * len(names), 3), layout="constrained")
    all_axes: Any = figure.subplots(1, len(names), sharey=True, squeeze=False)
    for axes, problem in zip(all_axes.flat, names, strict=True):
        for i, kind in enumerate(NAMES):
            axes.plot(i, quoted(problem, kind), "_", color="tab:gray", markersize=20, label=None if i else "quoted")
            each = scores(rows, problem, kind)
            axes.plot([i] * len(each), each, "o", color="tab:blue", alpha=0.6, label=None if i else "ours")
        axes.set(xticks=range(len(NAMES)), xticklabels=NAMES, xlim=(-0.6, len(NAMES) - 0.4))
        axes.set_title(problem, fontsize=9)
        axes.tick_params(axis="x", labelrotation=30)
        axes.spines[["top", "right"]].set_visible(False)
    all_axes[0, 0].set_ylabel("accuracy of symbols, percent")
    all_axes[0, 0].legend(frameon=False)
    figure.savefig(path, dpi=150)
