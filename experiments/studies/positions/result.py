"""Exact match of reversal at the lengths of training and at longer ones, by positions, each at its best rate."""

from pathlib import Path

from experiments.studies.study import Cell, Line, Row, Verdict, best, by_exact_match, chart, listed, mean, table

NAMES = ("model.positions", "model.position_range", "model.position_stretch")
LENGTHS = (15, 20, 25, 30)  # 1.5, 2, 2.5 and 3 times the longest in training
NONE, GAIN, MORE, LEARNED = 0.01, 0.12, 0.02, 0.9
Key = tuple[str, int, float]
Cells = dict[Key, Cell]


def cells(rows: list[Row]) -> Cells:
    """Returns the runs of each kind at the rate with the highest mean exact match at training lengths."""
    return best(rows, NAMES, by_exact_match)


def split(found: Cells) -> tuple[Cells, Cells, Cells]:
    """Returns the plain kinds, those with positions drawn from a range in training, and the stretched ones."""
    plain = {key: cell for key, cell in found.items() if not key[1] and key[2] == 1}
    return plain, {k: c for k, c in found.items() if k[1]}, {k: c for k, c in found.items() if k[2] > 1}


def learned(of: Cells) -> Cells:
    """Returns the kinds that have learned the training lengths."""
    return {key: cell for key, cell in of.items() if cell.mean("exact_match") >= LEARNED}


def gains(plain: Cells, varied: Cells) -> list[float]:
    """Returns how much each varied kind gains over its plain form at 1.5 times the length."""
    usual = {key[0]: cell for key, cell in plain.items()}
    return [cell.mean("exact_match_15") - usual[key[0]].mean("exact_match_15") for key, cell in varied.items()]


def verdicts(rows: list[Row]) -> list[Verdict]:
    plain, drawn, stretched = split(cells(rows))
    far = max((cell.mean("exact_match_20") for cell in learned(plain).values()), default=0.0)
    by_range, by_stretch = mean(gains(plain, drawn)), min(gains(plain, stretched))
    found = [(far, far <= NONE, plain), (by_range, by_range >= GAIN, drawn), (by_stretch, by_stretch > MORE, stretched)]
    few = "not learned in training"
    return [Verdict(f, None, few) if len(learned(of)) < 2 else Verdict(f, holds) for f, holds, of in found]


def name(key: Key) -> str:
    positions, of_range, stretch = key
    return positions + (f", range {of_range}" if of_range else "") + (f", stretch {stretch:g}" if stretch > 1 else "")


def tables(rows: list[Row]) -> dict[str, str]:
    figures = [f"exact_match_{n}" for n in LENGTHS]
    lines = [
        [name(key), f"{cell.rate:g}", listed(cell.values("exact_match"))]
        + [listed(cell.values(figure)) for figure in figures]
        for key, cell in cells(rows).items()
    ]
    return {"result": table(["positions", "rate", "up to 10", *map(str, LENGTHS)], lines)}


def conclusion(rows: list[Row]) -> list[str]:
    plain, drawn, stretched = split(cells(rows))
    far, by_range, by_stretch = verdicts(rows)

    def gained(of: Cells) -> str:
        return (
            f"{len(learned(of))} of {len(of)} have learned the task. They gain {listed(gains(plain, of), '+.3f')} at 15"
        )

    return [
        f"{len(learned(plain))} of {len(plain)} plain kinds have learned the task; the largest mean of these at 20 is "
        f"{far.figure:.3f}: the first claim {far}.",
        f"Of the kinds with a range {gained(drawn)}: the second is {by_range}.",
        f"Of the stretched kinds {gained(stretched)}: the third is {by_stretch}.",
    ]


def draw(path: Path, rows: list[Row]) -> None:
    """Plots mean exact match by length, a line for each kind at its best rate."""
    figures = ["exact_match", *(f"exact_match_{n}" for n in LENGTHS)]
    lines = [
        Line(name(key), [10, *LENGTHS], [*map(cell.mean, figures)], "o:" if key[1] else "o--" if key[2] > 1 else "o-")
        for key, cell in cells(rows).items()
    ]
    chart(path, {"": lines}, xlabel="symbols to reverse (10: at most 10, as in training)", ylabel="exact match")
