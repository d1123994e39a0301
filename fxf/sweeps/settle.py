"""Before the pairs of a trial: steps for equal compute, and a search for each config's learning rate."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fxf.base.errors import UserError
from fxf.reports.figures import HIGHER
from fxf.runs.flops import flops_per_token
from fxf.sweeps.crew import Crew, Job
from fxf.sweeps.plan import RATE, Arm, Plan, changed, read_plan, write_plan

FACTOR = 2.0  # between neighbouring learning rates
FURTHER = 2  # how often the search is extended by a rate if the best one is at the edge
SEEDS_OF_A_RATE = 2
SEEDS_FROM = 1_000_000  # offset of the search's seeds from those of the pairs
MEASURED = "measured"  # the folder of the short runs that measure seconds per step
MEASURED_STEPS, MEASURED_RUNS = 30, 3  # of each config


class Settled(NamedTuple):
    """The keys of a config that are settled before the pairs.

    Attributes:
      changes: the settled values of its keys.
      tried: [rate, mean metric of its runs, or None if a run failed] of each rate tried, in ascending order.
      bracketed: whether the best rate lies between a lower and a higher one; True if none was tried.
    """

    changes: dict[str, Any]
    tried: list[list[Any]]
    bracketed: bool


class OutOfTimeError(Exception):
    """The minutes of a trial were over before all its runs had ended."""


def settle(plan: Plan, workdir: Path, crew: Crew) -> dict[str, Settled]:
    """Returns the settled values of the arms `first` and `other`, and keeps them in plan.json.

    Raises:
      OutOfTimeError: the crew starts no more runs.
      UserError: the other config cannot run with equal compute; the training losses are means over other numbers of
        steps; or as `Crew.train_all`.
      Interrupted: as `Crew.train_all`.
    """
    saved = read_plan(workdir)
    if "settled" in saved:
        return {name: Settled(**values) for name, values in saved["settled"].items()}
    steps = {} if plan.null or plan.match == "steps" else {"train.steps": _equal_steps(plan, workdir, crew)}
    arms = {**plan.arms, "other": changed(plan.other, steps)}
    try:
        if steps:
            arms["other"].built()
    except UserError as error:
        raise UserError(f"--match: the other config with steps for equal {plan.match}: {error}") from None
    first, other = (_in_last_record(arm.config) for arm in arms.values())
    if plan.metric == "train_loss" and first != other:  # loss falls, so that the shorter mean would be better
        unequal = f"is the mean over the last record, of {first} steps of the first config and {other} of the other"
        raise UserError(f"--metric: train_loss {unequal}; name another metric, or set log.every to 1")
    settled = {name: _tuned(plan, name, arm, workdir, crew) for name, arm in arms.items()}
    settled["other"].changes.update(steps)
    write_plan(workdir, {**saved, "settled": {name: values._asdict() for name, values in settled.items()}})
    return settled


def _in_last_record(config: Mapping[str, Any]) -> int:
    """Returns the number of steps in a run's last record of training, whose mean loss is its `train_loss`."""
    intervals = config["log"]["every"], config["train"]["evaluate_every"], config["checkpoint"]["every"]
    return min((config["train"]["steps"] - 1) % every + 1 for every in intervals if every)


def _trained(crew: Crew, folder: Path, arms: Mapping[str, Arm], seed: int, n: int) -> list[list[Job]]:
    """Trains n runs of each arm in turns, in `folder`/NAME-0, -1, …; returns the jobs of each arm."""
    jobs = [[arm.job(seed + i, folder / f"{name}-{i}") for i in range(n)] for name, arm in arms.items()]
    if not crew.train_all([job for turn in zip(*jobs, strict=True) for job in turn]):
        raise OutOfTimeError
    return jobs


def _equal_steps(plan: Plan, workdir: Path, crew: Crew) -> int:
    """Returns the number of steps in which the other arm spends as many FLOPs, or seconds, as the first."""
    steps, seed = plan.first.config["train"]["steps"], plan.first.config["seed"]
    if plan.match == "flops":
        built = (arm.built() for arm in plan.arms.values())  # lazy: each is traced before the next one is built
        costs = [flops_per_token(x).training * x.task.largest_batch()["weights"].size for x in built]
    else:
        short = {name: changed(arm, _short(arm)) for name, arm in plan.arms.items()}
        costs = []
        for jobs in _trained(crew, workdir / MEASURED, short, seed, MEASURED_RUNS):
            seconds = [figure for job in jobs if (figure := job.figure("train_seconds"))]
            if not seconds:
                raise UserError(f"--match: {jobs[0].folder}: diverges, so its seconds are not known; take a lower rate")
            costs.append(min(seconds) / jobs[0].config["train"]["steps"])  # the minimum: other load only adds time
    return max(1, round(steps * costs[0] / costs[1]))


def _short(arm: Arm) -> dict[str, int]:
    """Returns the changes that make a run of an arm short, with warmup and decay that fit."""
    train, optimizer = arm.config["train"], arm.config["optimizer"]
    steps = min(MEASURED_STEPS, train["steps"])
    warmup = min(optimizer["warmup_steps"], steps - 1)
    decay = min(optimizer["decay_steps"], steps - warmup)
    return {"train.steps": steps, "optimizer.warmup_steps": warmup, "optimizer.decay_steps": decay}


def _tuned(plan: Plan, name: str, arm: Arm, workdir: Path, crew: Crew) -> Settled:
    """Searches the best learning rate of an arm."""
    if plan.rates == 1:
        return Settled({}, [], True)
    own, half = arm.config["optimizer"]["learning_rate"], plan.rates // 2
    rates, seed = [own * FACTOR**i for i in range(-half, half + 1)], plan.first.config["seed"] + SEEDS_FROM
    for _ in range(FURTHER + 1):
        arms = {f"{name}-{rate:.6g}": changed(arm, {RATE: rate}) for rate in rates}
        runs = _trained(crew, workdir / "rates", arms, seed, SEEDS_OF_A_RATE)
        settled = _best(dict(zip(rates, (_mean(jobs, plan.metric) for jobs in runs), strict=True)), own, plan.better)
        if settled.bracketed:
            break
        best = settled.changes[RATE]
        rates = sorted({*rates, best * FACTOR if best == rates[-1] else best / FACTOR})
    return settled


def _best(tried: Mapping[float, float | None], own: float, better: str) -> Settled:
    """Returns the best rate; among equal ones, the nearest to the config's own."""

    def badness(rate: float) -> tuple[float, float]:
        value = tried[rate]
        return math.inf if value is None else -value if better == HIGHER else value, abs(math.log(rate / own))

    best = min(tried, key=badness)
    bracketed = min(tried) < best < max(tried) and tried[best] is not None
    return Settled({RATE: best}, [[rate, tried[rate]] for rate in sorted(tried)], bracketed)


def _mean(jobs: list[Job], metric: str) -> float | None:
    figures = [job.figure(metric) for job in jobs]
    return None if None in figures else math.fsum(value for value in figures if value is not None) / len(figures)
