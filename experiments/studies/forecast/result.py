"""A law of loss by compute, fitted to small runs, beside the run that it forecasts."""

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import least_squares

from experiments.studies.conclude import Row, mean, table

BOUND = 0.02  # of the measured loss
ROWS, LENGTH = 16, 128  # of a batch, as in configs/studies/forecast.py
STARTS = [(floor, power) for floor in (0.05, 0.5, 1.0) for power in (0.05, 0.2, 0.5)]  # of the search for a law


class Law(NamedTuple):
    """The loss `floor + scale · compute ** -power` in nats; compute in units of 10¹² operations."""

    floor: float
    scale: float
    power: float

    def __call__(self, compute: float) -> float:
        return self.floor + self.scale * compute**-self.power


def compute(row: Row) -> float:
    """Returns the operations of a run, 6 · weights · tokens, in units of 10¹² (Kaplan et al. 2020, Table 1).

    The table of characters is tied to the readout, where each of its weights takes part in the products.
    """
    return 6e-12 * float(row["parameters"]) * row["train.steps"] * ROWS * LENGTH


def small_and_large(rows: list[Row]) -> tuple[list[Row], Row | None]:
    """Returns the runs of the fit, the narrowest first, and the widest one, which is None until it has a result."""
    widest = max(row["model.d_model"] for row in rows)
    finished = sorted((row for row in rows if "test_loss" in row), key=lambda row: (row["model.d_model"], row["seed"]))
    large = [row for row in finished if row["model.d_model"] == widest]
    return [row for row in finished if row["model.d_model"] < widest], large[0] if large else None


def fit(rows: list[Row], with_floor: bool = True) -> Law:
    """Returns the law with the smallest sum of squared errors of the loss's logarithm; without a floor, that is 0."""
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


def forecasts(small: list[Row], amount: float) -> dict[str, float]:
    """Returns the loss that each law forecasts for an amount of compute."""
    return {name: law(small)(amount) for name, law in LAWS.items()}


LAWS: dict[str, Callable[[list[Row]], Law]] = {
    "with a floor": fit,
    "without a floor": functools.partial(fit, with_floor=False),
}


def errors(rows: list[Row]) -> dict[str, float]:
    """Returns by how much the forecast of each law is above the large run's loss, as a share of that loss.

    Raises:
      ValueError: the large run has no result.
    """
    small, large = small_and_large(rows)
    if large is None:
        raise ValueError("the study of forecasts has no result of its large run")
    return {name: loss / large["test_loss"] - 1 for name, loss in forecasts(small, compute(large)).items()}


def amount_of(rows: list[Row]) -> float:
    """Returns the compute of the widest run, before it has a result too.

    Blocks grow with the square of the width, and all other weights with the width.
    """
    narrow, wide = (pick(rows, key=lambda row: row["model.d_model"]) for pick in (min, max))
    (d, m), n_layers = (row["model.d_model"] for row in (narrow, wide)), 2
    others = (narrow["parameters"] - 12 * n_layers * d**2) / d
    return compute({**wide, "parameters": 12 * n_layers * m**2 + others * m})


def text(rows: list[Row]) -> str:
    small, large = small_and_large(rows)
    both = forecasts(small, amount_of(rows))
    foreseen = " and ".join(f"{loss:.4f} {name}" for name, loss in both.items())
    widest = max(row["model.d_model"] for row in rows)
    return (
        f"{_fits(small)}\nFor the run of width {widest}, with {amount_of(rows):.1f} · 10¹² operations, the laws "
        f"forecast {foreseen}.\n" + (_verdicts(small, large) if large else _waiting())
    )


def _waiting() -> str:
    return "\n![test loss by compute](plot.png)\n\n## Conclusion\n\nThe large run has no result yet.\n"


def _fits(small: list[Row]) -> str:
    lines = []
    for width in sorted({row["model.d_model"] for row in small}):
        runs = [row for row in small if row["model.d_model"] == width]
        losses = [row["test_loss"] for row in runs]
        first = runs[0]
        lines.append(
            [
                str(width),
                f"{first['parameters']:,}",
                f"{first['train.steps']:,}",
                f"{compute(first):.3f}",
                f"{mean(losses):.4f}",
                ", ".join(f"{loss:.4f}" for loss in losses),
                *(f"{law(small)(compute(first)):.4f}" for law in LAWS.values()),
            ]
        )
    header = ["width", "weights", "steps", "compute, 10¹² operations", "test loss", "of each seed"]
    floor = fit(small)
    power = fit(small, with_floor=False)
    return (
        f"{table([*header, *(f'law {name}' for name in LAWS)], lines)}\n"
        f"With compute C in 10¹² operations, the law with a floor is {floor.floor:.3f} + "
        f"{floor.scale:.3f} C^−{floor.power:.3f}, and the one without is {power.scale:.3f} C^−{power.power:.3f}.\n"
    )


def _verdicts(small: list[Row], large: Row) -> str:
    amount = compute(large)
    both = forecasts(small, amount)
    off = errors([*small, large])
    floor, power = LAWS
    seeds = sorted({row["seed"] for row in small})
    alone = ", ".join(f"{fit([row for row in small if row['seed'] == seed])(amount):.4f}" for seed in seeds)
    times = amount / max(compute(row) for row in small)
    return (
        f"\n![test loss by compute](plot.png)\n\n## Conclusion\n\n"
        f"The run of width {large['model.d_model']} has {large['parameters']:,} weights and {large['train.steps']:,} "
        f"steps, {times:.1f} times the compute of the largest run of the fit. Its test loss is "
        f"{large['test_loss']:.4f}.\n\n"
        f"- The law with a floor forecast {both[floor]:.4f}, an error of {off[floor]:+.1%}; the test asks for at "
        f"most {BOUND:.0%}: the first claim {_verdict(abs(off[floor]) <= BOUND)}. Fitted to one seed each, it "
        f"forecasts {alone}.\n"
        f"- The law without a floor forecast {both[power]:.4f}, an error of {off[power]:+.1%}: the second claim "
        f"{_verdict(abs(off[floor]) < abs(off[power]))}.\n"
    )


def _verdict(holds: bool) -> str:
    return "**holds**" if holds else "**does not hold**"


def draw(path: Path, rows: list[Row]) -> None:
    """Draws the loss of each run by its compute, both laws, and the run that they forecast."""
    from matplotlib.figure import Figure

    small, large = small_and_large(rows)
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes: Any = figure.add_subplot()
    amounts = [compute(row) for row in [*small, *([large] if large else [])]]
    line = np.geomspace(min(amounts), max(amounts) * 1.3, 100)
    for (name, law), style in zip(LAWS.items(), ("-", ":"), strict=True):
        axes.plot(line, [law(small)(amount) for amount in line], style, color="tab:gray", label=f"law {name}")
    axes.plot(amounts[: len(small)], [row["test_loss"] for row in small], "o", color="tab:blue", label="fitted to")
    if large:
        axes.plot(
            compute(large), large["test_loss"], "*", color="tab:red", markersize=12, label="measured after the forecast"
        )
    axes.set(xscale="log", yscale="log", xlabel="compute (10¹² operations)", ylabel="test loss (nats a character)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(which="both", alpha=0.2)
    axes.yaxis.set_major_formatter("{x:.1f}")
    axes.yaxis.set_minor_formatter("{x:.1f}")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)
