"""Trials: pairs of runs, one after another, until the answer is clear or the budget is spent."""

import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from fxf.config import differences
from fxf.errors import DivergedError, UserError
from fxf.files import read_json
from fxf.machine import signals
from fxf.machine.status import stage
from fxf.reports.run_files import CONFIG, RESULT, is_number
from fxf.runs.programs import Kept
from fxf.sweeps.together import train_logged
from fxf.trials.evidence import Evidence
from fxf.trials.plan import Budget, Plan, keep_plan
from fxf.trials.verdict import Pair, Verdict, judge, write

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
    pairs: list[Pair] = []
    with stage("trying pairs", budget.seeds) as progress:
        for pair in _pairs(plan, workdir):
            pairs.append(pair)
            progress.at(len(pairs))
            verdict = judge(plan, pairs, stopped := why_to_stop(plan, pairs, budget))
            write(verdict, workdir)
            told(pair, verdict.evidence)
            if stopped:
                return verdict
    raise AssertionError("a budget ends")


def why_to_stop(plan: Plan, pairs: list[Pair], budget: Budget) -> str:
    """Returns why no further pair begins, or nothing if one does.

    The minutes are spent if another pair that takes as long as the shortest one so far would end after them.
    """
    if judge(plan, pairs).evidence.is_clear:
        return "the answer is clear"
    if len(pairs) >= budget.seeds:
        return f"all {budget.seeds} seeds are used"
    seconds = [pair.seconds for pair in pairs]
    if sum(seconds) + min(seconds) > 60 * budget.minutes:
        return f"the {budget.minutes:g} minutes are spent"
    return ""


def _pairs(plan: Plan, workdir: Path) -> Iterator[Pair]:
    """Yields the pairs in their order; runs that have ended are read."""
    kept: Kept = {}
    for index in itertools.count():
        runs = []
        for name, seed in zip(("first", "other"), plan.seeds_of(index), strict=True):
            arm = getattr(plan, name)
            config, folder = arm.config | {"seed": seed}, workdir / f"{name}-{seed}"
            runs.append(_ended(config, folder, plan.metric) or _train(config, folder, arm.origin, plan.metric, kept))
        first, other = runs
        yield Pair(plan.seeds_of(index), first.figure, other.figure, first.seconds + other.seconds)


def _train(config: dict[str, Any], folder: Path, origin: dict[str, Any], metric: str, kept: Kept) -> _Run:
    started = time.perf_counter()
    try:
        train_logged(config, folder, origin, kept)
    except DivergedError:
        signals.release()  # its steps need not be saved
        (folder / DIVERGED).write_text(json.dumps({"seconds": time.perf_counter() - started}))
    except UserError as error:
        raise UserError(f"{folder}: {error}") from None
    found = _ended(config, folder, metric)
    assert found is not None
    return found


def _ended(config: dict[str, Any], folder: Path, metric: str) -> _Run | None:
    """Returns what a run has left that has ended, or None if it has not.

    Raises:
      UserError: the folder holds a run of another config, or its result has no such figure or is damaged.
    """
    for name, figures in ((RESULT, (metric, "wall_seconds")), (DIVERGED, ("seconds",))):
        try:
            result = read_json(folder / name, "a run's result")
        except FileNotFoundError:
            continue
        _require_run_of(config, folder)
        for each in figures:
            if type(result.get(each, "")) not in (int, float, type(None)):  # null is a figure without a value
                there = ", ".join(name for name, value in result.items() if is_number(value))
                raise UserError(f"{folder / name}: {each} is not a number in it (there are {there or 'none'})")
        figure, seconds = (result[each] if is_number(result[each]) else None for each in (figures[0], figures[-1]))
        if seconds is None:
            raise UserError(f"{folder / name}: {figures[-1]} has no value")
        return _Run(None if name == DIVERGED else figure, seconds)
    return None


def _require_run_of(config: dict[str, Any], folder: Path) -> None:
    """Raises a UserError if the folder holds no run of the config."""
    try:
        there = read_json(folder / CONFIG, "a run's config").get("config")
    except FileNotFoundError:
        raise UserError(f"{folder}: holds a result without the {CONFIG} of its run; move it away") from None
    if differing := differences(there if isinstance(there, dict) else {}, config):
        raise UserError(f"{folder}: holds another run: {differing}; move it away, or use another --workdir")
