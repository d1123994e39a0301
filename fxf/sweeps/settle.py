"""What is settled before the pairs: equal compute, and a learning rate for each config, found with equal effort."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fxf.base.errors import UserError
from fxf.reports.figures import HIGHER
from fxf.runs.flops import flops_per_token
from fxf.sweeps.crew import Crew, Job
from fxf.sweeps.plan import RATE, Arm, Plan, changed, read_plan, write_plan

FACTOR = 2.0  # between a learning rate and the next
FURTHER = 2  # rates that are added beyond the lowest or highest if that one is the best
SEEDS_OF_A_RATE = 2
SEEDS_FROM = 1_000_000  # what the seeds of rates have more than those of pairs
MEASURED = "measured"  # the folder of short runs, for equal seconds
MEASURED_STEPS, MEASURED_RUNS = 30, 3  # of each config


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


class OutOfTimeError(Exception):
    """The minutes of a trial ended before its runs."""


def settle(plan: Plan, workdir: Path, crew: Crew) -> dict[str, Settled]:
    """Returns what the arms `first` and `other` run with, and keeps it in plan.json.

    Raises:
      OutOfTimeError: the crew begins no more runs.
      UserError: the other config cannot run with equal compute; or as `Crew.train_all`, as Interrupted.
    """
    there = read_plan(workdir)
    if "settled" in there:
        return {name: Settled(**found) for name, found in there["settled"].items()}
    steps = {} if plan.null or plan.match == "steps" else {"train.steps": _equal_steps(plan, workdir, crew)}
    arms = {**plan.arms, "other": changed(plan.other, steps)}
    try:
        if steps:
            arms["other"].built()
    except UserError as error:
        raise UserError(f"--match: the other config with steps for equal {plan.match}: {error}") from None
    settled = {name: _tuned(plan, name, arm, workdir, crew) for name, arm in arms.items()}
    settled["other"].changes.update(steps)
    write_plan(workdir, {**there, "settled": {name: found._asdict() for name, found in settled.items()}})
    return settled


def _trained(crew: Crew, folder: Path, arms: Mapping[str, Arm], seed: int, n: int) -> list[list[Job]]:
    """Returns n ended runs of each arm, in `folder`/<its name>-0, -1, …, trained in turns."""
    jobs = [[arm.job(seed + i, folder / f"{name}-{i}") for i in range(n)] for name, arm in arms.items()]
    if not crew.train_all([job for turn in zip(*jobs, strict=True) for job in turn]):
        raise OutOfTimeError
    return jobs


def _equal_steps(plan: Plan, workdir: Path, crew: Crew) -> int:
    """Returns the steps in which the other arm computes, or takes, as much as the first."""
    steps, seed = plan.first.config["train"]["steps"], plan.first.config["seed"]
    if plan.match == "flops":
        built = (arm.built() for arm in plan.arms.values())  # each is traced before the next one is built
        costs = [flops_per_token(each).training * each.task.largest_batch()["weights"].size for each in built]
    else:
        short = {name: changed(arm, _short(arm)) for name, arm in plan.arms.items()}
        costs = []
        for jobs in _trained(crew, workdir / MEASURED, short, seed, MEASURED_RUNS):
            seconds = [figure for job in jobs if (figure := job.figure("train_seconds"))]
            if not seconds:
                raise UserError(f"--match: {jobs[0].folder}: diverges, so its seconds are not known; take a lower rate")
            costs.append(min(seconds) / jobs[0].config["train"]["steps"])  # what disturbs adds
    return max(1, round(steps * costs[0] / costs[1]))


def _short(arm: Arm) -> dict[str, int]:
    """Returns the changes of keys that make a run of an arm short, with room for its schedule."""
    train, optimizer = arm.config["train"], arm.config["optimizer"]
    steps = min(MEASURED_STEPS, train["steps"])
    warmup = min(optimizer["warmup_steps"], steps - 1)
    decay = min(optimizer["decay_steps"], steps - warmup)
    return {"train.steps": steps, "optimizer.warmup_steps": warmup, "optimizer.decay_steps": decay}


def _tuned(plan: Plan, name: str, arm: Arm, workdir: Path, crew: Crew) -> Settled:
    """Returns an arm with its best rate."""
    if plan.rates == 1:
        return Settled({}, [], True)
    own, half = arm.config["optimizer"]["learning_rate"], plan.rates // 2
    rates, seed = [own * FACTOR**i for i in range(-half, half + 1)], plan.first.config["seed"] + SEEDS_FROM
    for _ in range(FURTHER + 1):
        arms = {f"{name}-{rate:.6g}": changed(arm, {RATE: rate}) for rate in rates}
        runs = _trained(crew, workdir / "rates", arms, seed, SEEDS_OF_A_RATE)
        found = _best(dict(zip(rates, (_mean(each, plan.metric) for each in runs), strict=True)), own, plan.better)
        if found.bracketed:
            break
        best = found.changes[RATE]
        rates = sorted({*rates, best * FACTOR if best == rates[-1] else best / FACTOR})
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
    figures = [job.figure(metric) for job in jobs]
    return None if None in figures else math.fsum(value for value in figures if value is not None) / len(figures)
