"""Three kinds of positions on longer strings: our scores, the quoted ones, and the pairs that they rank alike."""

import itertools

from experiments.studies.beside_quoted import APART, LEARNED, BesideQuoted, gap_and_span, guess, of_first_test, problems
from experiments.studies.breadth.result import FIGURE
from experiments.studies.conclude import Row, effort, mean, table

NEEDED = 4  # problems of the claim


def longer(rows: list[Row]) -> list[Row]:
    """Returns the runs of the second test, which have more steps than the others."""
    fewest = min(row["train.steps"] for row in rows)
    return [row for row in rows if row["train.steps"] > fewest]


def scores(rows: list[Row], problem: str, kind: str, figure: str = FIGURE) -> list[float]:
    """Returns a figure of each seed of the first test with a result, in percent."""
    aside = longer(rows)
    found = [row for row in rows if row["task.problem"] == problem and row["model.positions"] == kind]
    found = [row for row in found if row not in aside]
    return [100 * row[figure] for row in sorted(found, key=lambda row: row["seed"]) if figure in row]


KINDS = BesideQuoted({"none": "none", "sinusoidal": "sin/cos", "alibi": "ALiBi"}, scores)
draw = KINDS.draw


def judged(rows: list[Row], problem: str) -> dict[tuple[str, str], str]:
    """Returns reproduced, contradicted or open for each pair of kinds, the better one first, that is judged.

    A pair with a kind of fewer than two seeds is "not run".
    """
    found = {}
    for pair in itertools.permutations(KINDS.names, 2):
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
    verdicts = {problem: list(judged(rows, problem).values()) for problem in problems(rows)}
    return [name for name, each in verdicts.items() if "reproduced" in each and "contradicted" not in each]


def has_learned(rows: list[Row], problem: str) -> bool:
    """Returns whether a kind has learned the lengths of training, in part."""
    known = (scores(rows, problem, kind, "symbol_accuracy") for kind in KINDS.names)
    return max(mean(each) for each in known if each) - guess(problem) >= LEARNED


def explained(rows: list[Row], problem: str) -> str:
    """Returns why a ranking is not reproduced, as far as the lengths of training tell."""
    known = {kind: scores(rows, problem, kind, "symbol_accuracy") for kind in KINDS.names}
    means = {kind: mean(each) for kind, each in known.items() if each}
    if not means:
        return f"{problem} was not run, for want of time"
    if not has_learned(rows, problem):
        return (
            f"{problem}: no kind learned the lengths of training, with {min(means.values()):.1f} to "
            f"{max(means.values()):.1f} where a guess has {guess(problem):.0f}, so this training is too short to rank"
        )
    against = [f"{a} over {b}" for (a, b), verdict in judged(rows, problem).items() if verdict == "contradicted"]
    learned = ", ".join(f"{kind} {value:.1f}" for kind, value in means.items())
    return f"{problem}: up to 40 symbols the kinds have {learned}; contradicted beyond: {', '.join(against) or 'none'}"


def second_test(rows: list[Row]) -> tuple[str, str]:
    """Returns the table of the longer runs, and what they say of the contradicted pair."""
    found = [row for row in longer(rows) if FIGURE in row]
    if not found:
        return "", "not run, for want of time"
    problem, steps = found[0]["task.problem"], found[0]["train.steps"]
    best, bar = max(100 * row[FIGURE] for row in found), max(scores(rows, problem, "none"))
    lines = [
        [
            str(row["optimizer.learning_rate"]),
            str(row["seed"]),
            f"{100 * row[FIGURE]:.1f}",
            f"{100 * row['symbol_accuracy']:.1f}",
        ]
        for row in found
    ]
    explains = "explains" if best > bar else "does not explain"
    return (
        f"Sinusoids on {problem} after {steps:,} steps:\n\n"
        f"{table(['learning rate', 'seed', 'ours', 'ours up to 40'], lines)}\n",
        f"the highest of {len(found)} longer runs of sinusoids on {problem} is {best:.1f}, and the highest "
        f"without positions {bar:.1f}; the short training {explains} the contradiction",
    )


def text(rows: list[Row]) -> str:
    pairs = [
        [problem, f"{better} over {worse}", verdict]
        for problem in problems(rows)
        for (better, worse), verdict in judged(rows, problem).items()
    ]
    first, held = problems(of_first_test(rows)), reproduced(of_first_test(rows))
    of_longer, told = second_test(rows)
    verdict = "**holds**, on condition of the quoted figures" if len(held) >= NEEDED else "**does not hold**"
    return (
        f"{KINDS.table(rows)}\n{table(['problem', 'pair', 'here'], pairs)}\n"
        f"{of_longer}![accuracy by problem and kind](plot.png)\n\n## Conclusion\n\n"
        f"- First test: the ranking of {len(held)} of {len(first)} problems is reproduced "
        f"({', '.join(held) or 'none'}): the claim {verdict}.\n"
        + "".join(f"- {explained(rows, problem)}.\n" for problem in first if problem not in held)
        + f"- Second test: {told}.\n- Third test: {third_test(rows)}.\n- {effort(rows)}\n"
    )


def third_test(rows: list[Row]) -> str:
    """Returns on how many of all problems the ranking is reproduced, contradicted, open or not judged."""
    held = reproduced(rows)
    verdicts = {problem: set(judged(rows, problem).values()) for problem in problems(rows)}
    kinds = {
        "reproduced": held,
        "with a contradicted pair": [name for name, each in verdicts.items() if "contradicted" in each],
        "with open pairs only": [name for name, each in verdicts.items() if each == {"open"}],
        "with figures too close to be judged": [name for name, each in verdicts.items() if not each],
    }
    told = "; ".join(f"{what} {len(names)} ({', '.join(names)})" for what, names in kinds.items() if names)
    pairs = [verdict for problem in verdicts for verdict in judged(rows, problem).values()]
    found = "found" if len(held) >= NEEDED else "not found"
    unlearned = [problem for problem in held if not has_learned(rows, problem)]
    return (
        f"of {len(verdicts)} problems {told}. The published ranking is {found} again on at least {NEEDED}, on "
        f"condition of the quoted figures. Of {len(pairs)} pairs {pairs.count('reproduced')} are reproduced and "
        f"{pairs.count('contradicted')} contradicted, where chance alone would bring equal numbers of both. In "
        f"{len(unlearned)} of the {len(held)} problems no kind is {LEARNED:.0f} points above a guess on the lengths of "
        "training: there the kinds differ in how they fail"
    )
