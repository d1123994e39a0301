"""Trials: pairs of runs, one after another, until the answer is clear or the budget is spent."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from fxf.config import differences
from fxf.errors import DivergedError, UserError
from fxf.files import read_json
from fxf.machine import signals
from fxf.machine.status import stage
from fxf.reports.run_files import is_run, read
from fxf.runs.programs import Kept
from fxf.sweeps.together import train_logged
from fxf.trials.evidence import Evidence, evidence
from fxf.trials.plan import Arm, Budget, Plan, keep_plan
from fxf.trials.verdict import Pair, Verdict, pair_differences, write

DIVERGED = "diverged.json"  # in the folder of a run that diverged: the seconds that it took


class _Run(NamedTuple):
    """A run of a pair: its figure, None if it diverged, and its seconds."""

    figure: float | None
    seconds: float


Told = Callable[[Pair, Evidence], None]


def carry_out(plan: Plan, workdir: Path, budget: Budget = Budget(), told: Told = lambda *_: None) -> Verdict:
    """Runs pairs until the answer is clear or the budget is spent, and returns the verdict.

    Each run has a folder of its own in `workdir`. All runs share the programs of this process, so that only the first
    pair compiles. The verdict so far is written after each pair. The same call goes on with a trial that was stopped,
    and with a larger budget also with one that found no difference.

    Args:
      told: called after each pair with the pair and what all so far say.

    Raises:
      UserError: the folder holds a trial with another plan, or a run failed otherwise than by diverging.
      Interrupted: a signal asked to stop; the step of the run is saved.
    """
    keep_plan(plan, budget, workdir)
    kept: Kept = {}
    pairs: list[Pair] = []
    with stage("trying pairs", budget.seeds) as progress:
        while True:
            seeds = plan.seeds_of(len(pairs))
            first = _run_of(plan.first, seeds[0], workdir / f"first-{seeds[0]}", plan.metric, kept)
            other = _run_of(plan.other, seeds[1], workdir / f"other-{seeds[1]}", plan.metric, kept)
            pairs.append(Pair(seeds, first.figure, other.figure, first.seconds + other.seconds))
            progress.at(len(pairs))
            found = evidence(pair_differences(plan, pairs), plan.level)
            verdict = Verdict(plan, list(pairs), found, why_to_stop(found, pairs, budget))
            write(verdict, workdir)
            told(pairs[-1], found)
            if verdict.stopped:
                return verdict


def why_to_stop(found: Evidence, pairs: Sequence[Pair], budget: Budget) -> str:
    """Returns why no further pair begins, or nothing if one does.

    The minutes are spent if another pair that takes as long as the shortest one so far would end after them.
    """
    if found.is_clear:
        return "the answer is clear"
    if len(pairs) >= budget.seeds:
        return f"all {budget.seeds} seeds are used"
    seconds = [pair.seconds for pair in pairs]
    if sum(seconds) + min(seconds) > 60 * budget.minutes:
        return f"the {budget.minutes:g} minutes are spent"
    return ""


def _run_of(arm: Arm, seed: int, folder: Path, metric: str, kept: Kept) -> _Run:
    """Returns the run of an arm with a seed. It is read if it has ended, and trained otherwise."""
    config, started = arm.config | {"seed": seed}, time.perf_counter()
    if (found := _ended(config, folder, metric)) is None:
        try:
            train_logged(config, folder, arm.origin, kept)
        except DivergedError:
            signals.release()  # its steps need not be saved
            (folder / DIVERGED).write_text(json.dumps({"seconds": time.perf_counter() - started}))
        except UserError as error:
            raise UserError(f"{folder}: {error}") from None
        found = _ended(config, folder, metric)
    assert found is not None
    return found


def _ended(config: dict, folder: Path, metric: str) -> _Run | None:
    """Returns what a run has left that has ended, or None if it has not.

    Raises:
      UserError: the folder holds a run of another config, or its result has no such figure.
    """
    if not is_run(folder):
        return None
    run = read(folder)
    if differing := differences(run.config, config):
        raise UserError(f"{folder}: holds another run: {differing}; move it away, or use another --workdir")
    if (folder / DIVERGED).exists():
        return _Run(None, read_json(folder / DIVERGED, "the seconds of a run")["seconds"])
    if not run.result:
        return None
    figures = run.figures()
    seconds = figures.get("wall_seconds")
    if metric not in figures or seconds is None:
        raise UserError(f"{folder}: no {metric} and wall_seconds in its result (there are {', '.join(figures)})")
    return _Run(figures[metric], seconds)
