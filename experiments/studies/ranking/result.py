"""Three kinds of positions on longer strings: our scores, the quoted ones, and the pairs that they rank alike."""

from itertools import permutations

from experiments.studies.beside_quoted import APART, BesideQuoted, gap_and_span, of_first_test, problems
from experiments.studies.breadth.result import FIGURE
from experiments.studies.study import RATE, Row, Verdict, table

NEEDED = 4  # problems of the claim


def longer(rows: list[Row]) -> list[Row]:
    """Returns the runs of the second test, which have more steps than the others."""
    fewest = min(row["train.steps"] for row in rows)
    return [row for row in rows if row["train.steps"] > fewest]


def scores(rows: list[Row], problem: str, kind: str, figure: str = FIGURE) -> list[float]:
    """Returns a figure of each seed of the first test with a result, in percent."""
    aside = longer(rows)
    found = [row for row in rows if row["task.problem"] == problem and row["model.positions"] == kind]
    found = [row for row in found if row not in aside and figure in row]
    return [100 * row[figure] for row in sorted(found, key=lambda row: row["seed"])]


KINDS = BesideQuoted({"none": "none", "sinusoidal": "sin/cos", "alibi": "ALiBi"}, scores)
draw = KINDS.draw


def judged(rows: list[Row], problem: str) -> dict[tuple[str, str], str]:
    """Returns reproduced, contradicted or open for each pair of kinds, the better one first, that is judged.

    A pair with a kind of fewer than two seeds is "not run".
    """
    found = {}
    for pair in permutations(KINDS.names, 2):
        if KINDS.quoted(problem, pair[0]) - KINDS.quoted(problem, pair[1]) < APART:
            continue
        better, worse = (scores(rows, problem, kind) for kind in pair)
        if min(len(better), len(worse)) < 2:
            found[pair] = "not run"
            continue
        gap, span = gap_and_span(better, worse)
        found[pair] = "reproduced" if gap > span else "contradicted" if -gap > span else "open"
    return found


def reproduced(rows: list[Row]) -> list[str]:
    """Returns the problems whose ranking is reproduced."""
    found = {problem: list(judged(rows, problem).values()) for problem in problems(rows)}
    return [name for name, each in found.items() if "reproduced" in each and "contradicted" not in each]


def verdicts(rows: list[Row]) -> list[Verdict]:
    """Returns those of the first and of the third test, and between them whether more steps explain bucket sort."""
    first, every, bars = (
        len(reproduced(of_first_test(rows))),
        len(reproduced(rows)),
        scores(rows, "bucket_sort", "none"),
    )
    best = max(100 * row[FIGURE] for row in longer(rows))
    return [Verdict(first, first >= NEEDED), Verdict(best, best > max(bars)), Verdict(every, every >= NEEDED)]


def tables(rows: list[Row]) -> dict[str, str]:
    pairs = [
        [problem, f"{better} over {worse}", verdict]
        for problem in problems(rows)
        for (better, worse), verdict in judged(rows, problem).items()
    ]
    more = [
        [str(row[RATE]), str(row["seed"]), *(f"{100 * row[name]:.1f}" for name in (FIGURE, "symbol_accuracy"))]
        for row in longer(rows)
    ]
    return {
        "result": KINDS.table(rows),
        "pairs": table(["problem", "pair", "here"], pairs),
        "longer": table(["learning rate", "seed", "ours", "ours up to 40"], more),
    }
