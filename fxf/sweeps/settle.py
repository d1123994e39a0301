"""What is settled before the pairs: equal compute, and a learning rate for each config, found with equal effort."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fxf.reports.figures import HIGHER
from fxf.runs.experiment import build
from fxf.runs.flops import flops_per_token
from fxf.sweeps.crew import Job
from fxf.sweeps.jobs import figure_of, job_of
from fxf.sweeps.plan import RATE, Arm, Plan, changed, read_plan, write_plan

FACTOR = 2.0  # between a learning rate and the next
FURTHER = 2  # rates that are added beyond the lowest or highest if that one is the best
SEEDS_OF_A_RATE = 2
SEEDS_FROM = 1_000_000  # what the seeds of rates have more than those of pairs
MEASURED = "measured"  # the folder of short runs, for equal seconds
MEASURED_STEPS, MEASURED_RUNS = 30, 3  # of each config
Train = Callable[[Sequence[Job]], bool]


class Settled(NamedTuple):
    """What a config runs with.

    Attributes:
      changes: other values of its keys.
      tried: [rate, mean figure of its runs, or None if one had none] of each rate that was tried, in ascending order.
      bracketed: whether the rate has a lower and a higher one beside it that are no better; True if none was tried.
    """

    changes: dict[str, Any]
    tried: list[list[Any]]
    bracketed: bool


def settle(plan: Plan, workdir: Path, train: Train) -> dict[str, Settled] | None:
    """Returns what the arms `first` and `other` run with, and keeps it in plan.json; None if the time is spent.

    Args:
      train: trains the runs that have not ended, and returns whether all have, in time.

    Raises:
      UserError: as `train_all`.
    """
    there = read_plan(workdir)
    if "settled" in there:
        return {name: Settled(**found) for name, found in there["settled"].items()}
    arms = {"first": plan.first, "other": plan.other}
    if plan.match != "steps":
        if (steps := _equal_steps(plan, workdir, train)) is None:
            return None
        arms["other"] = changed(plan.other, {"train.steps": steps})
    settled = dict[str, Settled]()
    for name, arm in arms.items():
        if (found := _tuned(plan, name, arm, workdir, train)) is None:
            return None
        settled[name] = found
    if plan.match != "steps":
        settled["other"].changes["train.steps"] = arms["other"].config["train"]["steps"]
    write_plan(workdir, {**there, "settled": {name: found._asdict() for name, found in settled.items()}})
    return settled


def _runs(arm: Arm, seed: int, folder: Path, n: int) -> list[Job]:
    return [job_of(arm, seed + i, folder.with_name(f"{folder.name}-{i}")) for i in range(n)]


def _equal_steps(plan: Plan, workdir: Path, train: Train) -> int | None:
    """Returns the steps in which the other arm computes, or takes, as much as the first; None if the time is spent."""
    arms = {"first": plan.first, "other": plan.other}
    if plan.match == "flops":
        built = [build(arm.config) for arm in arms.values()]
        costs = [flops_per_token(each).training * each.task.largest_batch()["weights"].size for each in built]
    else:
        jobs = []
        for name, arm in arms.items():
            short = changed(arm, {"train.steps": min(MEASURED_STEPS, arm.config["train"]["steps"])})
            jobs.append(_runs(short, arm.config["seed"], workdir / MEASURED / name, MEASURED_RUNS))
        if not train([job for pair in zip(*jobs, strict=True) for job in pair]):
            return None
        seconds = [[(figure_of(job, "train_seconds") or math.inf, job) for job in of_arm] for of_arm in jobs]
        costs = [
            min(s / job.config["train"]["steps"] for s, job in each) for each in seconds
        ]  # what disturbs only adds
    return max(1, round(plan.first.config["train"]["steps"] * costs[0] / costs[1]))


def _tuned(plan: Plan, name: str, arm: Arm, workdir: Path, train: Train) -> Settled | None:
    """Returns an arm with its best rate; None if the time is spent."""
    if plan.rates == 1:
        return Settled({}, [], True)
    own, half = arm.config["optimizer"]["learning_rate"], plan.rates // 2
    rates, seed = [own * FACTOR**i for i in range(-half, half + 1)], plan.first.config["seed"] + SEEDS_FROM
    for _ in range(FURTHER + 1):
        jobs = {
            rate: _runs(changed(arm, {RATE: rate}), seed, workdir / f"rates/{name}-{rate:.6g}", SEEDS_OF_A_RATE)
            for rate in sorted(rates)
        }
        if not train([job for of_rate in jobs.values() for job in of_rate]):
            return None
        found = _best({rate: _mean(of_rate, plan.metric) for rate, of_rate in jobs.items()}, own, plan.better)
        if found.bracketed:
            break
        best = found.changes[RATE]
        rates.append(best * FACTOR if best == max(rates) else best / FACTOR)
    return found


def _best(tried: Mapping[float, float | None], own: float, better: str) -> Settled:
    """Returns the best rate; of equal ones that which is nearest to the config's own."""

    def badness(rate: float) -> tuple[float, float]:
        value = tried[rate]
        return math.inf if value is None else -value if better == HIGHER else value, abs(math.log(rate / own))

    best = min(tried, key=badness)
    bracketed = min(tried) < best < max(tried) and tried[best] is not None
    return Settled({RATE: best}, [[rate, tried[rate]] for rate in sorted(tried)], bracketed)


def _mean(jobs: list[Job], metric: str) -> float | None:
    figures = [figure_of(job, metric) for job in jobs]
    return None if None in figures else math.fsum(value for value in figures if value is not None) / len(figures)
