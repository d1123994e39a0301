"""What each form of block learns with and without a warm-up, by depth, at its best rate."""

from pathlib import Path

from experiments.studies.study import (
    Cell,
    Line,
    Row,
    Verdict,
    best,
    by_exact_match,
    by_rate,
    chart,
    listed,
    reached,
    records,
    table,
)

NAMES = ("model.n_layers", "model.block", "optimizer.warmup_steps")
KINDS = {"pre_norm": "tab:blue", "post_norm": "tab:orange", "idea": "tab:green"}
NEEDED, ALIKE, DEEPER, BEHIND = 0.2, 0.05, 0.1, 0.02
Cells = dict[tuple[int, str, int], Cell]


def cells(rows: list[Row]) -> Cells:
    """Returns the runs of each depth, block and warm-up at the rate with the highest mean exact match."""
    return best(rows, NAMES, by_exact_match)


def shares(found: Cells, depth: int, kind: str) -> list[float]:
    """Returns the mean exact match without and with a warm-up."""
    return [cell.mean("exact_match") for (d, k, _), cell in sorted(found.items()) if (d, k) == (depth, kind)]


def verdicts(rows: list[Row]) -> list[Verdict]:
    found = cells(rows)
    depths = sorted({depth for depth, _, _ in found})
    shallow, deep = depths
    of = {(depth, kind): shares(found, depth, kind) for depth in depths for kind in KINDS}
    gains = {place: after - before for place, (before, after) in of.items()}
    idea = min(max(of[depth, "idea"]) - max(of[depth, "pre_norm"]) for depth in depths)
    deeper = gains[deep, "post_norm"] - gains[shallow, "post_norm"]
    lead = of[deep, "pre_norm"][0] - of[deep, "post_norm"][1]
    return [
        Verdict(gains[deep, "post_norm"], gains[deep, "post_norm"] >= NEEDED),
        Verdict(gains[deep, "pre_norm"], gains[deep, "pre_norm"] <= ALIKE),
        Verdict(deeper, deeper > DEEPER),
        Verdict(lead, lead >= -ALIKE),
        Verdict(idea, idea >= -BEHIND),
    ]


def tables(rows: list[Row]) -> dict[str, str]:
    of_runs, nan = records("blocks"), float("nan")
    header = ["blocks", "form", "warm-up", "rate", "exact match", "training loss", "steps to 0.99"]
    order = sorted(cells(rows).items(), key=lambda item: (item[0][0], [*KINDS].index(item[0][1]), item[0][2]))
    lines = [
        [
            *(*map(str, key), f"{cell.rate:g}"),
            *(listed(cell.values("exact_match")), listed(cell.values("train_loss", nan)), reached(cell, of_runs)),
        ]
        for key, cell in order
    ]
    return {"result": table(header, lines)}


def draw(path: Path, rows: list[Row]) -> None:
    """Draws the mean exact match by rate, a picture for each depth; without a warm-up the line is dashed."""
    panels: dict[str, list[Line]] = {}
    for (depth, kind, warmup), of in sorted(by_rate(rows, NAMES).items()):
        means, style = [cell.mean("exact_match") for cell in of], "o-" if warmup else "o--"
        line = Line(f"{kind}, warm-up {warmup}", [cell.rate for cell in of], means, style, KINDS[kind])
        panels.setdefault(f"{depth} blocks", []).append(line)
    chart(path, panels, xscale="log", xlabel="learning rate", ylabel="exact match, mean of two seeds")
