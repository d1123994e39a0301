"""Exact match at 500 symbols of each problem, by walks, by rotary positions and by recurrent guests."""

from pathlib import Path

from experiments.studies.study import RATE, Row, Verdict, chart, dots, rows_of, table

CLAIMED = (
    *("reverse_string", "duplicate_string", "odds_first", "stack_manipulation"),
    *("parity", "even_pairs", "missing_duplicate", "cycle_navigation"),
)
BOUND, SEEDS, LEAST = 0.99, 4, 4
FIGURES = ("exact_match", "exact_match_500", "token_accuracy_500")
EARLIER = rows_of("length", "earlier")  # the same runs, made on another machine two days before
GUESTS = rows_of("length", "recurrent")  # of configs/studies/recurrent.py


def runs_of(rows: list[Row], problem: str, positions: str) -> list[Row]:
    found = [row for row in rows if row["task.problem"] == problem and row["model.positions"] == positions]
    return sorted(found, key=lambda row: row["seed"])


def is_solved(rows: list[Row], problem: str) -> bool:
    return sum(run["exact_match_500"] >= BOUND for run in runs_of(rows, problem, "walks")) >= SEEDS


def solved(rows: list[Row]) -> list[str]:
    """Returns the problems of the claim that hold its bound in these runs and in the earlier ones."""
    return [problem for problem in CLAIMED if is_solved(rows, problem) and is_solved(EARLIER, problem)]


def verdicts(rows: list[Row]) -> list[Verdict]:
    n = len(solved(rows))
    part = "" if n == len(CLAIMED) else f"for {n} of {len(CLAIMED)}"
    return [Verdict(n, True, part) if n >= LEAST else Verdict(n, False)]


def tables(rows: list[Row]) -> dict[str, str]:
    others = [problem for problem in dict.fromkeys(row["task.problem"] for row in rows) if problem not in CLAIMED]
    places = [(problem, kind) for problem in CLAIMED for kind in ("walks", "rotary")]
    lines = []
    for place in [*places, *((problem, "walks") for problem in others)]:
        runs, before = runs_of(rows, *place), runs_of(EARLIER, *place)
        cells = [_shown([run[name] for run in runs]) for name in FIGURES]
        cells.insert(2, _shown([run["exact_match_500"] for run in before]))
        lines.append([*place, str(len(runs)), *cells])
    where = ("up to 40", "500", "500, earlier", "tokens at 500")
    return {"result": table(["problem", "positions", "seeds", *where], lines), "guests": _guests()}


def _guests() -> str:
    """Returns the exact match of the recurrent guests by their rates."""
    names = ("exact_match", "exact_match_500", "token_accuracy_500")
    lines = [
        [row["model.blocks"].partition(":")[2].rstrip("()"), row["task.problem"], f"{row[RATE]:g}"]
        + [f"{row[name]:.4g}" for name in names]
        for row in GUESTS
        if "exact_match" in row
    ]
    return table(["guest", "problem", "rate", "up to 40", "500", "tokens at 500"], lines)


def conclusion(rows: list[Row]) -> list[str]:
    (verdict,), rotary = verdicts(rows), [runs_of(rows, problem, "rotary")[0] for problem in CLAIMED]
    far, near = (max(run[figure] for run in rotary) for figure in ("exact_match_500", "exact_match"))
    first, again = ({row["point"]: row["exact_match_500"] for row in of} for of in (EARLIER, rows))
    same = sum(first[point] == again[point] for point in again)
    others = [row for row in rows if row["task.problem"] not in CLAIMED]
    return [
        f"{verdict.figure} of {len(CLAIMED)} problems have at least {BOUND} at 500 in {SEEDS} of five seeds, in both "
        f"makings: the claim {verdict}.",
        f"All was made twice, on two machines; {same} of {len(again)} runs have the same exact match at 500.",
        f"Rotary positions have at most {far:g} at 500, and at most {near:g} up to 40: they did not learn the lengths "
        "of training.",
        f"Of the other {len(others)} problems walks solve {sum(row['exact_match_500'] >= BOUND for row in others)}.",
    ]


def _shown(values: list[float]) -> str:
    """Returns one number if all are equal, and all of them otherwise."""
    texts = [f"{value:.4g}" for value in values]
    return texts[0] if len(set(texts)) == 1 else ", ".join(texts)


def draw(path: Path, rows: list[Row]) -> None:
    """Draws exact match at 500 symbols, a dot for each run."""
    lines = []
    for kind, style in (("walks", "o"), ("rotary", "x")):
        found = [(row["exact_match_500"], row["task.problem"]) for row in rows if row["model.positions"] == kind]
        lines.append(dots(kind, found, style))
    chart(path, {"": lines}, xlabel="exact match at 500 symbols, trained on at most 40", xlim=(-0.03, 1.03))
