"""Trials: rates and steps are settled, then pairs of runs train up to each look, until one ends the trial."""

import dataclasses
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from ml_collections import ConfigDict

from fxf.base.config import Field, checked, differing_keys
from fxf.base.errors import UserError, shortened
from fxf.base.files import folder_at, read_json
from fxf.runs.api import plain_config
from fxf.sweeps.crew import Crew, Job
from fxf.sweeps.evidence import LEVELS, LOOKS, Evidence
from fxf.sweeps.plan import RATE, Arm, Budget, Plan, changed, keep_plan, make_plan, read_plan
from fxf.sweeps.settle import OutOfTimeError, Settled, settle
from fxf.sweeps.verdict import EARLY, LOG, Pair, Verdict, write, write_page

Told = Callable[[str], None]

SECONDS = "wall_seconds"
SIZES = {"half": 0.5, "as given": 1.0, "double": 2.0}
SCALED = ("n_layers", "d_model", "d_ff")  # keys of the model; heads stay as many


def carry_out(plan: Plan, workdir: Path, budget: Budget = Budget(), told: Told = lambda _: None) -> Verdict:
    """Runs pairs until a look ends the trial or the budget is spent, and returns the verdict.

    Each run has a folder of its own in `workdir`. A process shares the programs of its runs, so that only the first
    pair compiles. The verdict so far is written at each look. The same call goes on with a trial that was stopped, and
    with more seeds or minutes, or with `whole`, also with one that has ended.

    Args:
      told: called with lines about the most that is done and the pairs so far.

    Raises:
      UserError: the folder holds a trial with another plan, or a run failed otherwise than by diverging.
      Interrupted: a signal asked to stop; the steps of the runs are saved.
    """
    checked(budget.seeds, Field(int, {"minimum": 2}), "--seeds")
    checked(budget.minutes, Field(float, {"minimum": 0}), "--minutes")
    keep_plan(plan, budget, workdir)
    budget = budget._replace(whole=any(attempt["whole"] for attempt in read_plan(workdir)["budgets"]))
    with Crew(budget.workers, budget.minutes) as crew:
        differing = ", ".join(differing_keys(plan.first.config, plan.other.config)) or "their seeds or files"
        told(shortened(f"the configs differ in {differing}"))
        at_most = f"at most {budget.seeds} pairs of seeds, in {budget.minutes:g} minutes at most"
        told(f"{at_most}; a claim about the mean takes {min(LEVELS)} pairs")
        try:
            settled = settle(plan, workdir, crew)
        except OutOfTimeError:
            verdict = Verdict(plan, {}, [], f"the {budget.minutes:g} minutes are spent")
        else:
            verdict = _at_looks(plan, settled, workdir, budget, crew, told)
    write(verdict, workdir)
    with (workdir / LOG).open("a") as log:
        log.write("\n  ".join([f"{time.strftime('%F %T')}  {budget}", *verdict.lines()]) + "\n")
    return verdict


def _at_looks(
    plan: Plan, settled: Mapping[str, Settled], workdir: Path, budget: Budget, crew: Crew, told: Told
) -> Verdict:
    """Returns the verdict of the look that ends the trial; of each one before it is written."""
    if not all(found.bracketed for found in settled.values()):
        return Verdict(plan, settled, [], "no pair is run before the best rate stands between two others")
    arms = {name: changed(arm, settled[name].changes) for name, arm in plan.arms.items()}

    def jobs_of(number: int) -> list[Job]:
        of_arms = zip(arms.items(), plan.seeds_of(number), strict=True)
        return [arm.job(seed, workdir / f"{name}-{seed}") for (name, arm), seed in of_arms]

    pairs: list[Pair] = []
    if tuning := [read_json(path, "a result")[SECONDS] for path in workdir.glob("rates/*/result.json")]:
        told(_cost(2 * median(tuning), budget.seeds, budget))
    for look in [*(look for look in LOOKS if look < budget.seeds), budget.seeds]:
        in_time = crew.train_all([job for number in range(len(pairs), look) for job in jobs_of(number)])
        for number in range(len(pairs), look):
            jobs = jobs_of(number)
            if any(job.ended() is None for job in jobs):
                break
            first, other = (job.figure(plan.metric) for job in jobs)
            pairs.append(Pair(plan.seeds_of(number), first, other, sum(job.figure(SECONDS) or 0 for job in jobs)))
        verdict = Verdict(plan, settled, [*pairs])
        verdict = dataclasses.replace(verdict, stopped=why_to_stop(verdict.evidence, budget, in_time))
        if verdict.stopped:
            verdict = check_rates(verdict, workdir, crew, told)
        told(f"{len(pairs)} pairs: {verdict.headline}")
        if verdict.stopped:
            break
        told(_cost(median(pair.seconds for pair in pairs), budget.seeds - len(pairs), budget))
        write(verdict, workdir)
    return verdict


def check_rates(verdict: Verdict, workdir: Path, crew: Crew, told: Told) -> Verdict:
    """Returns the verdict with the figures of the worse config at the rates beside its own, up to one that decides."""
    plan, name = verdict.plan, verdict.worse
    seeds = [pair.seeds[0] for pair, both in zip(verdict.pairs, verdict.outcomes, strict=True) if None not in both]
    for rate in verdict.rates_beside():
        arm = changed(plan.arms[name], {**verdict.settled[name].changes, RATE: rate})
        folder = workdir / f"checks/{name}-{rate:.6g}"
        jobs = [arm.job(seed, folder / str(seed)) for seed in seeds]
        told(f"the claim is checked with the rate {rate:.4g} of the {name} config: {len(jobs)} runs")
        if not crew.train_all(jobs):
            break
        figures = [job.figure(plan.metric) for job in jobs]
        verdict = dataclasses.replace(verdict, checks={**verdict.checks, rate: figures})
        if verdict.rate_decides:
            break
    return verdict


def _cost(seconds: float, n_pairs: int, budget: Budget) -> str:
    """Returns how long so many pairs will take, from the median of one: the first run compiles."""
    return f"the next {n_pairs} pairs take about {seconds * n_pairs / budget.workers / 60:.1f} minutes"


def why_to_stop(found: Evidence, budget: Budget, in_time: bool) -> str:
    """Returns why no further pair begins, or nothing if one does."""
    if found.mean:
        return "the mean is clear"
    if found.n >= budget.seeds:
        return f"all {budget.seeds} seeds are used"
    if not in_time:
        return f"the {budget.minutes:g} minutes are spent"
    if budget.whole:
        return ""
    if found.failures or found.signs:
        return EARLY + ("failures differ" if found.failures else "most seeds agree")
    return EARLY + "little differs" if found.calm else ""


def try_sizes(
    first: Arm, other: Arm | None, workdir: Path, budget: Budget, told: Told, **rules: Any
) -> dict[str, Verdict]:
    """Returns the verdict of a trial at each size of the model, by the size's name, and writes a page of all.

    Args:
      rules: as in `make_plan`.

    Raises:
      UserError: as `make_plan` and `carry_out`; the plans of all sizes are made before the first run.
    """
    plans, found = {}, dict[str, Verdict]()
    for name, factor in SIZES.items():
        folder = workdir / name.replace(" ", "_")
        try:
            plans[name] = folder, make_plan(scaled(first, factor), other and scaled(other, factor), folder, **rules)
        except UserError as error:
            raise UserError(f"--scales: {name}: {error}") from None
    for name, (folder, plan) in plans.items():
        found[name] = carry_out(plan, folder, budget, lambda text, name=name: told(f"{name}: {text}"))  # type: ignore[misc]
        write_page(f"{workdir.name} at {len(SIZES)} sizes", {n: (v, plans[n][0]) for n, v in found.items()}, workdir)
    return found


def scaled(arm: Arm, factor: float) -> Arm:
    """Returns the arm with a model of another depth and width."""
    model = arm.config["model"]
    sizes = {f"model.{key}": max(1, int(model[key] * factor)) for key in SCALED if model.get(key)}
    return changed(arm, sizes) if factor != 1 else arm


def trial(
    first: str | Path | ConfigDict | Mapping[str, Any],
    other: str | Path | ConfigDict | Mapping[str, Any] | None,
    workdir: str | Path,
    *,
    seeds: int = 32,
    minutes: float = 30.0,
    whole: bool = False,
    workers: int = 1,
    **rules: Any,
) -> Verdict:
    """Tries whether another config is better than the first one, over pairs of seeds, as `fxf try` does.

        other = fxf.read_config("reversal:example0")
        other.model.activation = "silu"
        found = fxf.trial("reversal:example0", other, "runs/silu", metric="train_loss", rates=1)
        print(found.verdict, found.effect)

    Args:
      first: a config, as that of `train`. Its seed is the first one.
      other: the other config, or None for the null trial of the first one against itself.
      workdir: the folder of the trial, with a run folder for each run.
      seeds: the most pairs of seeds; a claim about the mean is made after 32 and 64.
      minutes: the minutes after which no run begins.
      whole: whether no look before 32 pairs ends the trial.
      workers: processes that train side by side on a CPU.
      rules: `metric`, `failed`, `rates` and `match`, as in `fxf.sweeps.plan.make_plan`.

    Returns:
      The verdict: `verdict`, `headline`, `effect` (with the ends of its interval, or None), `evidence` and `pairs`;
      `figures()` is what verdict.json has.

    Raises:
      UserError: a config or the metric is wrong, the folder holds a trial with another plan, or a run failed otherwise
        than by diverging.
    """
    folder = folder_at(workdir, "workdir")
    arms = Arm(*plain_config(first)), None if other is None else Arm(*plain_config(other))
    return carry_out(make_plan(*arms, folder, **rules), folder, Budget(seeds, minutes, whole, workers))
