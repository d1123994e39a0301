"""A scaling law of loss by compute, fitted to small runs, beside the run that it forecasts."""

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import least_squares

from experiments.studies.study import Line, Row, Verdict, chart, listed, mean, table

BOUND = 0.02  # share of the measured loss
ROWS, LENGTH = 16, 128  # per batch, as in configs/studies/forecast.py
STARTS = [(floor, power) for floor in (0.05, 0.5, 1.0) for power in (0.05, 0.2, 0.5)]  # searched for the fit
LAWS = {"with a floor": True, "without a floor": False}


class Law(NamedTuple):
    """The loss `floor + scale · compute ** -power` in nats; compute in units of 10¹² operations."""

    floor: float
    scale: float
    power: float

    def __call__(self, compute: float) -> float:
        return self.floor + self.scale * compute**-self.power


def compute(row: Row) -> float:
    """Returns the operations of a run, 6 · weights · tokens, in units of 10¹² (Kaplan et al. 2020, Table 1).

    The embedding table is tied to the unembedding, so its weights take part in matrix products.
    """
    return 6e-12 * float(row["parameters"]) * row["train.steps"] * ROWS * LENGTH


def small_and_large(rows: list[Row]) -> tuple[list[Row], Row]:
    """Returns the runs to fit, the narrowest first, and the widest run."""
    *small, large = sorted(rows, key=lambda row: (row["model.d_model"], row["seed"]))
    return small, large


def fit(rows: list[Row], with_floor: bool = True) -> Law:
    """Returns the least-squares fit of the loss's logarithm; without a floor, `floor` is 0."""
    amounts, losses = (np.array(values) for values in zip(*((compute(r), r["test_loss"]) for r in rows), strict=True))
    if not with_floor:
        slope, offset = np.polyfit(np.log(amounts), np.log(losses), 1)
        return Law(0.0, math.exp(offset), -slope)

    def errors(x: np.ndarray) -> np.ndarray:
        log_floor, log_scale, power = x
        return np.log(np.exp(log_floor) + np.exp(log_scale - power * np.log(amounts))) - np.log(losses)

    found = [least_squares(errors, [math.log(floor), 0.0, power], x_scale=[1, 1, 0.1]) for floor, power in STARTS]
    log_floor, log_scale, power = min(found, key=lambda each: each.cost).x
    return Law(math.exp(log_floor), math.exp(log_scale), float(power))


def errors(rows: list[Row]) -> list[float]:
    """Returns each law's forecast minus the large run's loss, as a share of that loss."""
    small, large = small_and_large(rows)
    return [fit(small, floor)(compute(large)) / large["test_loss"] - 1 for floor in LAWS.values()]


def verdicts(rows: list[Row]) -> list[Verdict]:
    floor, power = (abs(float(error)) for error in errors(rows))
    # The large run has one rate; a better one would lower its loss, towards the law without a floor.
    return [Verdict(floor, floor <= BOUND).if_bracketed(False), Verdict(power, floor < power).against(False)]


def tables(rows: list[Row]) -> dict[str, str]:
    small, _ = small_and_large(rows)
    laws, lines = [fit(small, floor) for floor in LAWS.values()], []
    for width in sorted({row["model.d_model"] for row in small}):
        runs = [row for row in small if row["model.d_model"] == width]
        amount, losses = compute(runs[0]), [row["test_loss"] for row in runs]
        sizes = [str(width), f"{runs[0]['parameters']:,}", f"{runs[0]['train.steps']:,}", f"{amount:.3f}"]
        lines.append([*sizes, f"{mean(losses):.4f}", listed(losses, ".4f"), *(f"{law(amount):.4f}" for law in laws)])
    header = ["width", "weights", "steps", "compute, 10¹² operations", "test loss", "of each seed"]
    return {"result": table([*header, *(f"law {name}" for name in LAWS)], lines)}


def conclusion(rows: list[Row]) -> list[str]:
    small, large = small_and_large(rows)
    laws, (floor, power) = [fit(small, has_floor) for has_floor in LAWS.values()], errors(rows)
    first, second = verdicts(rows)
    told = [law(compute(large)) for law in laws]
    times = compute(large) / max(map(compute, small))
    of_each = [row["train.steps"] * ROWS * LENGTH / row["parameters"] for row in rows]  # tokens
    seeds = sorted({row["seed"] for row in small})
    of_seeds = [fit([row for row in small if row["seed"] == seed])(compute(large)) for seed in seeds]
    return [
        f"The run of width {large['model.d_model']} has {times:.1f} times the compute of the largest run of the fit. "
        f"Its test loss is {large['test_loss']:.4f}. A run has {min(of_each):.1f} to "
        f"{max(of_each):.1f} tokens for each of all its weights.",
        f"The law with a floor, {laws[0].floor:.3f} + {laws[0].scale:.3f} C^−{laws[0].power:.3f}, forecast "
        f"{told[0]:.4f}, {100 * floor:+.1f} % off: the first claim is {first}. Fitted to one seed each it forecasts "
        f"{listed(of_seeds, '.4f')}.",
        f"The law without, {laws[1].scale:.3f} C^−{laws[1].power:.3f}, forecast {told[1]:.4f}, {100 * power:+.1f} % "
        f"off: the second claim {second}. A better rate that brought the loss below {mean(told):.4f} would reverse it.",
    ]


def draw(path: Path, rows: list[Row]) -> None:
    """Plots each run's loss by compute, both laws, and the run that they forecast."""
    small, large = small_and_large(rows)
    amounts = [compute(row) for row in small]
    along = np.geomspace(min(amounts), compute(large) * 1.3, 100).tolist()
    laws = {name: fit(small, floor) for name, floor in LAWS.items()}
    lines = [Line(f"law {name}", along, [law(x) for x in along], "-") for name, law in laws.items()]
    lines += [Line("fitted to", amounts, [row["test_loss"] for row in small], "o")]
    lines += [Line("measured after the forecast", [compute(large)], [large["test_loss"]], "*")]
    options: dict[str, Any] = {"xlabel": "compute (10¹² operations)", "ylabel": "test loss (nats a character)"}
    chart(path, {"": lines}, xscale="log", yscale="log", **options)
