"""Drawn and plain positions on longer strings: our scores, the quoted ones, and whether they rank alike."""

from experiments.studies.beside_quoted import APART, LEARNED, BesideQuoted, gap_and_span, guess, of_first_test, problems
from experiments.studies.breadth.result import FIGURE
from experiments.studies.conclude import Row, effort, mean

DRAWN, ROTARY, SINUSOIDAL = "rotary, drawn", "rotary", "sinusoidal"
GAP = 5  # points that drawn positions are ahead by
NEEDED, N_SEEDS = 4, 3  # problems of the claim, and of the second test; runs of each kind


def kind_of(row: Row) -> str:
    return DRAWN if row["task.position_range"] else row["model.positions"]


def scores(rows: list[Row], problem: str, kind: str, figure: str = FIGURE) -> list[float]:
    """Returns a figure of each seed with a result, in percent."""
    found = [row for row in rows if row["task.problem"] == problem and kind_of(row) == kind and figure in row]
    return [100 * row[figure] for row in sorted(found, key=lambda row: row["seed"])]


KINDS = BesideQuoted({DRAWN: "randomized RoPE", ROTARY: "RoPE", SINUSOIDAL: "sin/cos"}, scores)
draw = KINDS.draw


def is_complete(rows: list[Row], problem: str) -> bool:
    return all(len(scores(rows, problem, kind)) == N_SEEDS for kind in KINDS.names)


def is_decided(rows: list[Row]) -> bool:
    """Returns whether every run of both tests has a result."""
    return all(is_complete(rows, problem) for problem in problems(rows))


def gap(rows: list[Row], problem: str, better: str, worse: str) -> tuple[float, float]:
    return gap_and_span(scores(rows, problem, better), scores(rows, problem, worse))


def failures(rows: list[Row], problem: str) -> list[str]:
    """Returns the conditions of the test that a problem with all its runs does not meet."""
    found = []
    for kind in (ROTARY, SINUSOIDAL):
        difference, span = gap(rows, problem, DRAWN, kind)
        if difference < GAP:
            found.append(f"the gap to {kind} positions is {difference:.1f} points, and {GAP} were needed")
        elif difference <= span:
            found.append(
                f"the gap to {kind} positions is {difference:.1f} points, within the span of seeds, {span:.1f}"
            )
    apart = KINDS.quoted(problem, ROTARY) - KINDS.quoted(problem, SINUSOIDAL)
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
    first = of_first_test(rows)
    held = reproduced(first)
    verdict = "**holds**, on condition of the quoted figures" if len(held) >= NEEDED else "**does not hold**"
    return (
        f"{KINDS.table(rows)}\n![accuracy by problem and kind](plot.png)\n\n## Conclusion\n\n"
        f"- First test: the ranking of {len(held)} of {len(problems(first))} problems is reproduced "
        f"({', '.join(held) or 'none'}): the claim {verdict}.\n- Second test: {second_test(rows)}.\n"
        + "".join(f"- {_told(rows, problem)}.\n" for problem in problems(rows))
        + f"- {effort(rows)}\n"
    )


def second_test(rows: list[Row]) -> str:
    held, names = reproduced(rows), problems(rows)
    if not is_decided(rows):
        return "not all of its runs have a result"
    found = "found again, on condition of the quoted figures" if len(held) >= NEEDED else "not found again"
    told = f"of all {len(names)} problems the ranking of {len(held)} is reproduced ({', '.join(held) or 'none'})"
    return f"{told}: it is {found}"


def _told(rows: list[Row], problem: str) -> str:
    if not is_complete(rows, problem):
        return f"{problem}: not run, or not with all seeds"
    if against := failures(rows, problem):
        return f"{problem}: {'; '.join(against)}"
    ahead = [f"{gap(rows, problem, DRAWN, kind)[0]:.1f} points ahead of {kind} ones" for kind in (ROTARY, SINUSOIDAL)]
    ours, theirs = mean(scores(rows, problem, DRAWN)), KINDS.quoted(problem, DRAWN)
    return f"{problem}: drawn positions are {' and '.join(ahead)}. Their mean of {ours:.1f} is quoted as {theirs:.1f}"
