"""Sensitivity of the loss to the learning rate, with and without a norm of queries and keys."""

import math
from pathlib import Path

from experiments.studies.study import Line, Row, Verdict, chart, listed, mean, mean_losses, table

NAMES = {False: "without", True: "with `qk_norm`"}
Losses = dict[bool, dict[int, dict[float, float]]]


def losses(rows: list[Row]) -> Losses:
    """Returns {norm: {width: {rate: mean test loss}}}, capped at a guess's loss, ln V, as is that of a failed run."""
    guess = math.log(max(row["vocabulary"] for row in rows if "vocabulary" in row))
    return {norm: mean_losses((row for row in rows if row["model.qk_norm"] == norm), guess, guess) for norm in NAMES}


def sensitivity(by_rate: dict[float, float]) -> float:
    """Returns the mean over rates of the loss minus the lowest loss (Wortsman et al. 2023, "LR sensitivity")."""
    return mean(loss - min(by_rate.values()) for loss in by_rate.values())


def verdicts(rows: list[Row]) -> list[Verdict]:
    found = losses(rows)
    ratio = max(sensitivity(found[True][width]) / sensitivity(of) for width, of in found[False].items())
    return [Verdict(ratio, ratio < 1)]


def tables(rows: list[Row]) -> dict[str, str]:
    found = losses(rows)
    widths, rates = list(found[False]), list(next(iter(found[False].values())))
    header = ["width", *(f"{what} {name}" for name in NAMES.values() for what in ("sensitivity", "lowest loss"))]
    lines = [[str(width)] for width in widths]
    for width, line in zip(widths, lines, strict=True):
        for of in (found[norm][width] for norm in NAMES):
            line += [f"{sensitivity(of):.3f}", f"{min(of.values()):.3f}"]
    columns = [(width, norm) for width in widths for norm in NAMES]
    all_lines = [[f"{rate:g}", *(f"{found[norm][width][rate]:.3f}" for width, norm in columns)] for rate in rates]
    names = (f"{width}, {NAMES[norm].split()[0]}" for width, norm in columns)
    return {"result": table(header, lines), "losses": table(["rate", *names], all_lines)}


def conclusion(rows: list[Row]) -> list[str]:
    (verdict,), found = verdicts(rows), losses(rows)
    ratios = {width: sensitivity(found[True][width]) / sensitivity(of) for width, of in found[False].items()}
    return [
        f"The sensitivity is {listed(ratios.values(), '.2f')} times that without, at widths "
        f"{listed(ratios, 'd')}: the claim {verdict}."
    ]


def draw(path: Path, rows: list[Row]) -> None:
    """Plots losses by rate, a panel for each width."""
    panels: dict[str, list[Line]] = {}
    for norm, of in losses(rows).items():
        for width, by_rate in of.items():
            line = Line(NAMES[norm].replace("`", ""), [*by_rate], [*by_rate.values()])
            panels.setdefault(f"width {width}", []).append(line)
    chart(path, panels, xscale="log", xlabel="learning rate", ylabel="test loss (nats, at most a guess's)")
