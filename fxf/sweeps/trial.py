"""Trials: rates and steps are settled, then pairs of runs train up to each look, until one ends the trial."""

import functools
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from fxf.base.files import folder_at
from fxf.runs.api import plain_config
from fxf.sweeps.crew import Crew, Job
from fxf.sweeps.jobs import SECONDS, ended, figure_of, job_of, train_all
from fxf.sweeps.plan import Arm, Budget, Plan, Rules, changed, keep_plan, make_plan
from fxf.sweeps.settle import Settled, Train, settle
from fxf.sweeps.verdict import EARLY, LOG, Pair, Verdict, verdict_of, write

Told = Callable[[str], None]


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
    keep_plan(plan, budget, workdir)
    with Crew(budget.workers, budget.minutes) as crew:
        told(f"at most {budget.seeds} pairs of seeds, in {budget.minutes:g} minutes at most")
        train = functools.partial(train_all, crew)
        settled = settle(plan, workdir, train)
        if settled is None:
            verdict = verdict_of(plan, {}, [], f"the {budget.minutes:g} minutes are spent")
        elif not all(found.bracketed for found in settled.values()):
            verdict = verdict_of(plan, settled, [], "no pair is run before the best rate stands between two others")
        else:
            verdict = _at_looks(plan, settled, workdir, budget, train, told)
    write(verdict, workdir)
    with (workdir / LOG).open("a") as log:
        log.write("\n  ".join([f"{time.strftime('%F %T')}  {budget}", *verdict.lines()]) + "\n")
    return verdict


def _at_looks(
    plan: Plan, settled: dict[str, Settled], workdir: Path, budget: Budget, train: Train, told: Told
) -> Verdict:
    arms = {name: changed(getattr(plan, name), settled[name].changes) for name in ("first", "other")}

    def jobs_of(number: int) -> list[Job]:
        seeds = zip(arms, plan.seeds_of(number), strict=True)
        return [job_of(arms[name], seed, workdir / f"{name}-{seed}") for name, seed in seeds]

    pairs: list[Pair] = []
    for look in budget.looks():
        in_time = train([job for number in range(look) for job in jobs_of(number)])
        for number in range(len(pairs), look):
            jobs = jobs_of(number)
            if any(ended(job) is None for job in jobs):
                break
            first, other = (figure_of(job, plan.metric) for job in jobs)
            seconds = sum(figure_of(job, SECONDS) or 0 for job in jobs)
            pairs.append(Pair(plan.seeds_of(number), first, other, seconds))
        stopped = why_to_stop(verdict_of(plan, settled, pairs), budget, in_time)
        verdict = verdict_of(plan, settled, pairs, stopped)
        write(verdict, workdir)
        told(f"{len(pairs)} pairs: {verdict.headline}")
        if stopped:
            break
    return verdict


def why_to_stop(verdict: Verdict, budget: Budget, in_time: bool) -> str:
    """Returns why no further pair begins, or nothing if one does."""
    found = verdict.evidence
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


def trial(
    first: str | ConfigDict | Mapping[str, Any],
    other: str | ConfigDict | Mapping[str, Any] | None,
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
      workers: processes that train side by side on a CPU. With several, a script must not call this where it is
        imported (`if __name__ == "__main__":`).
      rules: `metric`, `failed`, `rates` and `match`, as in `fxf.sweeps.plan.Rules`.

    Returns:
      The verdict: `verdict`, `headline`, `effect` (with the ends of its interval, or None), `evidence` and `pairs`;
      `figures()` is what verdict.json has.

    Raises:
      UserError: a config or the metric is wrong, the folder holds a trial with another plan, or a run failed otherwise
        than by diverging.
    """
    folder = folder_at(workdir, "workdir")
    arms = Arm(*plain_config(first)), None if other is None else Arm(*plain_config(other))
    return carry_out(make_plan(*arms, folder, Rules(**rules)), folder, Budget(seeds, minutes, whole, workers))
