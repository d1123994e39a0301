"""Exact match at 500 symbols for each problem: walks, rotary positions, and recurrent models."""

import itertools
from pathlib import Path

from experiments.studies.study import RATE, Row, Verdict, chart, dots, rows_of, table

CLAIMED = (
    *("reverse_string", "duplicate_string", "odds_first", "stack_manipulation"),
    *("parity", "even_pairs", "missing_duplicate", "cycle_navigation"),
)
BOUND, SEEDS, LEAST = 0.99, 4, 4
FIGURES = ("exact_match", "exact_match_500")
EARLIER: dict[str, list[Row]] = {}  # earlier repeats of the runs by date
for earlier in rows_of("length", "earlier"):
    EARLIER.setdefault(earlier["made"], []).append(earlier)
GUESTS = rows_of("length", "recurrent")  # of configs/studies/recurrent.py


def runs_of(rows: list[Row], problem: str, positions: str) -> list[Row]:
    found = [row for row in rows if row["task.problem"] == problem and row["model.positions"] == positions]
    return sorted(found, key=lambda row: row["seed"])


def is_solved(rows: list[Row], problem: str) -> bool:
    return sum(run["exact_match_500"] >= BOUND for run in runs_of(rows, problem, "walks")) >= SEEDS


def solved(rows: list[Row]) -> list[str]:
    """Returns the claim's problems that meet its bound in these runs and in each earlier repeat."""
    return [problem for problem in CLAIMED if all(is_solved(made, problem) for made in (rows, *EARLIER.values()))]


def verdicts(rows: list[Row]) -> list[Verdict]:
    n = len(solved(rows))
    part = "" if n == len(CLAIMED) else f"for {n} of {len(CLAIMED)}"
    # Rotary positions have one rate.
    return [Verdict(n, True, part).against(False) if n >= LEAST else Verdict(n, False)]


def tables(rows: list[Row]) -> dict[str, str]:
    lines = []
    for problem in CLAIMED:
        walks, rotary = runs_of(rows, problem, "walks"), runs_of(rows, problem, "rotary")
        cells = [_shown([run[figure] for run in walks]) for figure in FIGURES]
        for made in EARLIER.values():
            cells.append(_shown([run["exact_match_500"] for run in runs_of(made, problem, "walks")]))
        lines.append([problem, *cells, *(_shown([run[figure] for run in rotary]) for figure in FIGURES)])
    return {"result": table(["problem", "walks", "at 500", *EARLIER, "rotary", "at 500"], lines)}


def of_guests() -> str:
    """Returns each recurrent model's exact match at 500 by rate."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in GUESTS:
        kind = row["model.blocks"].partition(":")[2].rstrip("()")
        found.setdefault((kind, row["task.problem"]), []).append(f"{row['exact_match_500']:g} at {row[RATE]:g}")
    return "; ".join(f"{kind} on {problem} {', '.join(shares)}" for (kind, problem), shares in found.items())


def conclusion(rows: list[Row]) -> list[str]:
    (verdict,), rotary = verdicts(rows), [runs_of(rows, problem, "rotary")[0] for problem in CLAIMED]
    far, near = (max(run[figure] for run in rotary) for figure in ("exact_match_500", "exact_match"))
    found: dict[str, set[float]] = {}
    for row in itertools.chain(rows, *EARLIER.values()):
        found.setdefault(row["point"], set()).add(row["exact_match_500"])
    same = sum(len(values) == 1 for values in found.values())
    others = [row for row in rows if row["task.problem"] not in CLAIMED]
    n_solved = sum(row["exact_match_500"] >= BOUND for row in others)
    return [
        f"{verdict.figure} of {len(CLAIMED)} problems have at least {BOUND} at 500 in {SEEDS} of five seeds, each "
        f"time: the claim {verdict}.",
        f"Each run was also made on the dates above: {same} of {len(found)} have the same result at 500 each time.",
        f"Rotary positions have at most {far:g} at 500, and at most {near:g} up to 40: they did not learn the lengths "
        "of training.",
        f"Without a bank, one seed, at two rates: {of_guests()}.",
        f"Of the other {len(others)} problems walks, one seed of each, solve {n_solved} at 500.",
    ]


def _shown(values: list[float]) -> str:
    """Returns one number if all are equal, otherwise all of them."""
    texts = [f"{value:.4g}" for value in values]
    return texts[0] if len(set(texts)) == 1 else ", ".join(texts)


def draw(path: Path, rows: list[Row]) -> None:
    """Plots exact match at 500 symbols, a dot for each run."""
    lines = []
    for kind, style in (("walks", "o"), ("rotary", "x")):
        found = [(row["exact_match_500"], row["task.problem"]) for row in rows if row["model.positions"] == kind]
        lines.append(dots(kind, found, style))
    chart(path, {"": lines}, xlabel="exact match at 500 symbols, trained on at most 40", xlim=(-0.03, 1.03))
