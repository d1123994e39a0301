"""Exact match at 500 symbols of each problem, by walks and by rotary positions."""

from pathlib import Path

from experiments.studies.study import Row, Verdict, chart, dots, rows_of, table

CLAIMED = (
    *("reverse_string", "duplicate_string", "odds_first", "stack_manipulation"),
    *("parity", "even_pairs", "missing_duplicate", "cycle_navigation"),
)
BOUND, SEEDS = 0.99, 4
FIGURES = ("exact_match", "exact_match_500", "token_accuracy", "token_accuracy_500")
EARLIER = rows_of("length", "earlier")  # the same runs, made on another machine two days before


def runs_of(rows: list[Row], problem: str, positions: str) -> list[Row]:
    found = [row for row in rows if row["task.problem"] == problem and row["model.positions"] == positions]
    return sorted(found, key=lambda row: row["seed"])


def is_solved(rows: list[Row], problem: str) -> bool:
    return sum(run["exact_match_500"] >= BOUND for run in runs_of(rows, problem, "walks")) >= SEEDS


def solved(rows: list[Row]) -> list[str]:
    """Returns the problems of the claim that hold its bound in these runs and in the earlier ones."""
    return [problem for problem in CLAIMED if is_solved(rows, problem) and is_solved(EARLIER, problem)]


def verdicts(rows: list[Row]) -> list[Verdict]:
    return [Verdict(len(solved(rows)), solved(rows) == [*CLAIMED])]


def tables(rows: list[Row]) -> dict[str, str]:
    others = [problem for problem in dict.fromkeys(row["task.problem"] for row in rows) if problem not in CLAIMED]
    places = [(problem, kind) for problem in CLAIMED for kind in ("walks", "rotary")]
    lines = []
    for place in [*places, *((problem, "walks") for problem in others)]:
        runs, before = runs_of(rows, *place), runs_of(EARLIER, *place)
        cells = [_shown([run[name] for run in runs]) for name in FIGURES]
        cells.insert(2, _shown([run["exact_match_500"] for run in before]))
        lines.append([*place, str(len(runs)), *cells])
    where = ("at most 40", "500", "500, earlier", "tokens at most 40", "tokens at 500")
    return {"result": table(["problem", "positions", "seeds", *where], lines)}


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
