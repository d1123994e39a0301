"""Drawn and plain positions on longer strings: our scores, the quoted ones, and whether they rank alike."""

from experiments.studies.beside_quoted import APART, LEARNED, BesideQuoted, gap_and_span, guess, of_first_test, problems
from experiments.studies.breadth.result import FIGURE
from experiments.studies.study import Row, Verdict, mean

DRAWN, ROTARY, SINUSOIDAL = "rotary, drawn", "rotary", "sinusoidal"
GAP = 5  # points that drawn positions are ahead by
NEEDED, N_SEEDS = 4, 3  # problems of the claim, and of the second test; runs of each kind


def scores(rows: list[Row], problem: str, kind: str, figure: str = FIGURE) -> list[float]:
    """Returns a figure of each seed with a result, in percent."""
    of_problem = sorted((row for row in rows if row["task.problem"] == problem), key=lambda row: row["seed"])
    kinds = [DRAWN if row["task.position_range"] else row["model.positions"] for row in of_problem]
    return [100 * row[figure] for row, of in zip(of_problem, kinds, strict=True) if of == kind and figure in row]


KINDS = BesideQuoted({DRAWN: "randomized RoPE", ROTARY: "RoPE", SINUSOIDAL: "sin/cos"}, scores)
draw = KINDS.draw


def is_complete(rows: list[Row], problem: str) -> bool:
    return all(len(scores(rows, problem, kind)) == N_SEEDS for kind in KINDS.names)


def is_reproduced(rows: list[Row], problem: str) -> bool:
    """Returns whether drawn positions are ahead as quoted, plain ones do not differ the other way, and all learned."""
    if not is_complete(rows, problem):
        return False
    of = {kind: scores(rows, problem, kind) for kind in KINDS.names}
    gaps = [gap_and_span(of[DRAWN], of[kind]) for kind in (ROTARY, SINUSOIDAL)]
    apart = KINDS.quoted(problem, ROTARY) - KINDS.quoted(problem, SINUSOIDAL)
    gap, span = gap_and_span(of[ROTARY], of[SINUSOIDAL])
    other_way = abs(apart) >= APART and gap * apart < 0 and abs(gap) > span
    has_learned = mean(scores(rows, problem, DRAWN, "symbol_accuracy")) - guess(problem) >= LEARNED
    return all(gap >= GAP and gap > span for gap, span in gaps) and not other_way and has_learned


def reproduced(rows: list[Row]) -> list[str]:
    """Returns the problems whose ranking is reproduced."""
    return [problem for problem in problems(rows) if is_reproduced(rows, problem)]


def verdicts(rows: list[Row]) -> list[Verdict]:
    """Returns those of both tests; the second is decided when every run has a result."""
    first, every = len(reproduced(of_first_test(rows))), len(reproduced(rows))
    decided = all(is_complete(rows, problem) for problem in problems(rows))
    return [Verdict(first, first >= NEEDED), Verdict(every, every >= NEEDED if decided else None)]


def tables(rows: list[Row]) -> dict[str, str]:
    return {"result": KINDS.table(rows)}
