"""Trials: settle learning rates and steps, then train pairs of runs up to each look until a look ends the trial."""

import dataclasses
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
from fxf.sweeps.verdict import EARLY, Pair, Verdict, write, write_page

Say = Callable[[str], None]

SECONDS = "wall_seconds"
SIZES = {"half": 0.5, "as given": 1.0, "double": 2.0}
SCALED = ("n_layers", "d_model", "d_ff")  # keys of the model; the number of heads stays


def run_trial(plan: Plan, workdir: Path, budget: Budget = Budget(), say: Say = lambda _: None) -> Verdict:
    """Trains pairs of runs until a look ends the trial or the budget is spent, and returns the verdict.

    Each run has its own folder in `workdir`. The runs of a process share compiled programs, so only the first pair
    compiles. The verdict so far is written at each look. The same call resumes a trial that was interrupted; with more
    seeds or minutes, or with `whole`, it also continues one that has ended.

    Args:
      say: called with each line about the budget and the progress.

    Raises:
      UserError: the folder holds a trial with another plan, or a run failed, not by diverging.
      Interrupted: a signal asked to stop; each run has saved its step.
    """
    checked(budget.seeds, Field(int, {"minimum": 2}), "--seeds")
    checked(budget.minutes, Field(float, {"minimum": 0}), "--minutes")
    checked(budget.workers, Field(int, {"minimum": 1}), "--workers")
    keep_plan(plan, budget, workdir)
    budget = budget._replace(whole=any(attempt["whole"] for attempt in read_plan(workdir)["budgets"]))
    with Crew(budget.workers, budget.minutes) as crew:
        differing = ", ".join(differing_keys(plan.first.config, plan.other.config)) or "their seeds or files"
        say(shortened(f"the configs differ in {differing}"))
        at_most = f"at most {budget.seeds} pairs of seeds, in {budget.minutes:g} minutes at most"
        say(f"{at_most}; a claim about the mean takes {min(LEVELS)} pairs")
        try:
            settled = settle(plan, workdir, crew)
        except OutOfTimeError:
            verdict = Verdict(plan, {}, [], f"the {budget.minutes:g} minutes are spent")
        else:
            verdict = _at_looks(plan, settled, workdir, budget, crew, say)
    write(verdict, workdir)
    return verdict


def _at_looks(
    plan: Plan, settled: Mapping[str, Settled], workdir: Path, budget: Budget, crew: Crew, say: Say
) -> Verdict:
    """Trains up to each look and returns the verdict of the last one; writes the verdicts of earlier looks."""
    if not all(rate.bracketed for rate in settled.values()):
        return Verdict(plan, settled, [], "no pairs are run until the best rate is between two others")
    arms = {name: changed(arm, settled[name].changes) for name, arm in plan.arms.items()}

    def jobs_of(number: int) -> list[Job]:
        arm_seeds = zip(arms.items(), plan.seeds_of(number), strict=True)
        return [arm.job(seed, workdir / f"{name}-{seed}") for (name, arm), seed in arm_seeds]

    pairs: list[Pair] = []
    if tuning := [read_json(path, "a result")[SECONDS] for path in workdir.glob("rates/*/result.json")]:
        say(_cost(2 * median(tuning), budget.seeds, budget))
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
            verdict = check_rates(verdict, workdir, crew, say)
        say(f"{len(pairs)} pairs: {verdict.headline}")
        if verdict.stopped:
            break
        say(_cost(median(pair.seconds for pair in pairs), budget.seeds - len(pairs), budget))
        write(verdict, workdir)
    return verdict


def check_rates(verdict: Verdict, workdir: Path, crew: Crew, say: Say) -> Verdict:
    """Trains the worse config at the rates beside its own, until the claim fails at one; adds the metrics as checks."""
    plan, name = verdict.plan, verdict.worse
    seeds = [pair.seeds[0] for pair, both in zip(verdict.pairs, verdict.outcomes, strict=True) if None not in both]
    for rate in verdict.rates_beside():
        arm = changed(plan.arms[name], {**verdict.settled[name].changes, RATE: rate})
        jobs = [arm.job(seed, workdir / f"checks/{name}-{rate:.6g}/{seed}") for seed in seeds]
        say(f"the claim is checked with the rate {rate:.4g} of the {name} config: {len(jobs)} runs")
        if not crew.train_all(jobs):
            break
        figures = [job.figure(plan.metric) for job in jobs]
        verdict = dataclasses.replace(verdict, checks={**verdict.checks, rate: figures})
        if verdict.rate_decides:
            break
    return verdict


def _cost(seconds: float, n_pairs: int, budget: Budget) -> str:
    """Returns a line about the time that pairs will take. `seconds` is a median, since the first run compiles."""
    return f"the next {n_pairs} pairs take about {seconds * n_pairs / budget.workers / 60:.1f} minutes"


def why_to_stop(evidence: Evidence, budget: Budget, in_time: bool) -> str:
    """Returns why the trial stops, "" if it goes on."""
    if evidence.mean:
        return "the mean is clear"
    if evidence.n >= budget.seeds:
        return f"all {budget.seeds} seeds are used"
    if not in_time:
        return f"the {budget.minutes:g} minutes are spent"
    if budget.whole:
        return ""
    if evidence.failures or evidence.signs:
        return EARLY + ("failures differ" if evidence.failures else "most seeds agree")
    return EARLY + "little differs" if evidence.calm else ""


def try_sizes(
    first: Arm, other: Arm | None, workdir: Path, budget: Budget, say: Say, **rules: Any
) -> dict[str, Verdict]:
    """Carries out a trial at each size of the model. Returns the verdicts by size, and writes one page of all.

    Args:
      rules: as in `make_plan`.

    Raises:
      UserError: as `make_plan` and `run_trial`. All plans are made before the first run.
    """
    plans, verdicts = {}, dict[str, Verdict]()
    for name, factor in SIZES.items():
        folder = workdir / name.replace(" ", "_")
        try:
            plans[name] = folder, make_plan(scaled(first, factor), other and scaled(other, factor), folder, **rules)
        except UserError as error:
            raise UserError(f"--scales: {name}: {error}") from None
    for name, (folder, plan) in plans.items():
        verdicts[name] = run_trial(plan, folder, budget, lambda text, name=name: say(f"{name}: {text}"))  # type: ignore[misc]
        write_page(f"{workdir.name} at {len(SIZES)} sizes", {n: (v, plans[n][0]) for n, v in verdicts.items()}, workdir)
    return verdicts


def scaled(arm: Arm, factor: float) -> Arm:
    """Returns the arm with the model's depth and widths multiplied by `factor`."""
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
    """Tests whether another config is better than the first one, over pairs of seeds, as `fxf try`.

        other = fxf.read_config("reversal:example0")
        other.model.activation = "silu"
        verdict = fxf.trial("reversal:example0", other, "runs/silu", metric="train_loss", rates=1)
        print(verdict.verdict, verdict.effect)

    Args:
      first: a config, as for `train`. Its seed is the first of the pairs' seeds.
      other: the other config, or None for the null trial of the first config against itself.
      workdir: the folder of the trial, with a run folder for each run.
      seeds: maximum number of pairs of seeds. The mean is claimed only at 32 and 64 pairs.
      minutes: no run begins after these.
      whole: whether looks before 32 pairs cannot end the trial.
      workers: processes that train in parallel on a CPU.
      rules: `metric`, `failed`, `rates` and `match`, as in `fxf.sweeps.plan.make_plan`.

    Returns:
      The verdict: `verdict`, `headline`, `effect` (with the ends of its interval, or None), `evidence` and `pairs`;
      `figures()` returns the content of verdict.json.

    Raises:
      UserError: a config or the metric is wrong, the folder holds a trial with another plan, or a run failed, not by
        diverging.
    """
    folder = folder_at(workdir, "workdir")
    arms = Arm(*plain_config(first)), None if other is None else Arm(*plain_config(other))
    return run_trial(make_plan(*arms, folder, **rules), folder, Budget(seeds, minutes, whole, workers))
