"""Exact match of reversal by length, with positions from the tokens or from the task."""

from pathlib import Path

from experiments.studies.study import SOLVED, Line, Row, Verdict, chart, mean, table

LENGTHS = (100, 200, 500, 1000)
NAMES = ("model.positions", "task.mirrored", "model.window", "task.max_length")
Key = tuple[str, bool, int, int]
TURNS, SHORTER, MIRRORED, NO_WINDOW, ROTARY = (
    *(("turns", False, 8, 40), ("turns", False, 8, 20), ("rotary", True, 2, 20)),
    *(("turns", False, 0, 40), ("rotary", False, 8, 40)),
)


def runs(rows: list[Row]) -> dict[Key, list[Row]]:
    kinds: list[Key] = [TURNS, SHORTER, MIRRORED, NO_WINDOW, ROTARY]
    return {key: [row for row in rows if tuple(row[name] for name in NAMES) == key] for key in kinds}


def verdicts(rows: list[Row]) -> list[Verdict]:
    found = runs(rows)
    at = {key: [[row[f"exact_match_{n}"] for row in of] for n in LENGTHS] for key, of in found.items()}
    others = max(mean(at[key][-1]) for key in (NO_WINDOW, ROTARY))
    shorter = sorted(at[SHORTER][1])[1]  # one of five seeds may be lower
    return [
        Verdict(min(at[TURNS][-1]), min(*at[TURNS][2], *at[TURNS][3]) >= 0.99),
        Verdict(shorter, min(at[SHORTER][0]) >= 0.95 and shorter >= 0.99),
        Verdict(min(at[MIRRORED][-1]), min(*at[MIRRORED][0], *at[MIRRORED][1]) >= 0.99),
        Verdict(others, others < mean(at[TURNS][-1])).against(False),  # one rate
    ]


def name(key: Key) -> str:
    positions, mirrored, window, _ = key
    return f"{'mirrored, ' * mirrored}{positions}, {f'window of {window}' if window else 'no window'}"


def tables(rows: list[Row]) -> dict[str, str]:
    figures = ("exact_match", *(f"exact_match_{n}" for n in LENGTHS))
    lines = [
        [name(key), f"up to {key[-1]}", str(len(of)), *(f"{mean(row[figure] for row in of):.4g}" for figure in figures)]
        for key, of in runs(rows).items()
    ]
    header = ["positions", "trained on", "seeds", "up to that", *(f"{n:,}" for n in LENGTHS)]
    return {"result": table(header, lines)}


def conclusion(rows: list[Row]) -> list[str]:
    long, short, mirrored, without = verdicts(rows)
    shares = [row["exact_match_200"] for row in runs(rows)[SHORTER]]
    n_solved = sum(share >= SOLVED for share in shares)
    return [
        f"Turns trained on at most 40 have {long.figure:g} at 1,000 in the worst seed: the first claim {long}.",
        f"Trained on at most 20, {n_solved} of {len(shares)} seeds have at least {SOLVED} at 200, the lowest "
        f"{min(shares):g}: the second {short}.",
        f"Mirrored positions have {mirrored.figure:g} at 1,000 in the worst seed: the third {mirrored}.",
        f"Without the window, or without turns, the mean at 1,000 is {without.figure:g}: the fourth {without}.",
    ]


def draw(path: Path, rows: list[Row]) -> None:
    """Plots mean exact match by length."""
    lines = [
        Line(f"{name(key)}, up to {key[-1]}", LENGTHS, [mean(row[f"exact_match_{n}"] for row in of) for n in LENGTHS])
        for key, of in runs(rows).items()
    ]
    chart(path, {"": lines}, xlabel="symbols to reverse", ylabel="exact match")
