"""A comparison of runs: the keys in which their configs differ, groups of seeds, and which runs score the same data."""

import dataclasses
import json
import os
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fxf.base.config import differing_keys, flatten
from fxf.base.errors import shortened
from fxf.base.status import stage
from fxf.reports.figures import better_of, is_score
from fxf.reports.run_files import DIVERGED, FINISHED, Record, RunFiles, is_run, no_run, read, runs_in

SEED = "seed"
MOST_CHARACTERS = 60  # of a run's note in the tables
LAST = ("train_loss", "tokens_per_second", "train_seconds", "parameters")  # the last columns
OF_TIME = ("compile_seconds", "evaluate_seconds", "wall_seconds", "steps_per_second", "goodput")
NOT_SHOWN = ("steps", SEED, "examples", *OF_TIME)
# Keys that change neither training nor scores. The exceptions in `checkpoint` choose the weights that are tested.
WITHOUT_EFFECT = ("parallel.", "log.", "checkpoint.", "data.prepared")
CHOOSING = ("checkpoint.best", "checkpoint.average")
OF_AVERAGE = ("checkpoint.every", "checkpoint.keep")  # these matter only to an average of checkpoints
TOKENIZER = "tokenizer.json"  # its name among the digests


class Entry(NamedTuple):
    """A run of a comparison.

    Attributes:
      name: a short name.
      values: the values of the config keys in which the runs differ.
      figures: the latest metrics; None for NaN, infinite and null.
      difference: how its task or scored data differ from those of most runs, "" if they do not.
    """

    run: RunFiles
    name: str
    values: dict[str, Any]
    figures: dict[str, float | None]
    difference: str

    @property
    def is_compared(self) -> bool:
        """Whether the run's metrics are final, and on the data that most runs score."""
        return self.run.state == FINISHED and not self.difference

    def is_lost(self, name: str) -> bool:
        """Returns whether the run diverged, or finished without a value of the metric."""
        return self.run.state == DIVERGED or (self.is_compared and self.figures.get(name, 0) is None)

    @property
    def said(self) -> str:
        """Why the run is not compared, in a few words."""
        progress = "" if self.run.state == FINISHED else self.run.said
        return shortened("; ".join(filter(None, (self.difference, progress))), MOST_CHARACTERS)


@dataclasses.dataclass(frozen=True, eq=False)
class Group:
    """Runs that differ only in the seed, and in keys without effect."""

    label: str
    entries: list[Entry]

    def seed_values(self, name: str) -> list[float]:
        """Returns a metric of each seed that has a value: its mean over the finished runs of the seed."""
        values = defaultdict[Any, list[float]](list)
        for entry in self.entries:
            value = entry.figures.get(name)
            if entry.is_compared and value is not None:
                values[entry.run.config.get(SEED)].append(value)
        return list(map(statistics.fmean, values.values()))

    def n_seeds(self) -> int:
        """Returns the number of seeds with a finished run."""
        return len({entry.run.config.get(SEED) for entry in self.entries if entry.is_compared})

    def n_diverged(self, name: str = "") -> int:
        """Returns the number of seeds with a run that diverged, or that finished without a value of the metric."""
        return len({entry.run.config.get(SEED) for entry in self.entries if entry.is_lost(name)})


class Comparison(NamedTuple):
    """Runs, and how they compare.

    Attributes:
      task: the task of most of the runs; only its runs are compared.
      keys: the config keys in which the runs differ, the seed last.
      groups: the runs of the task, grouped by their differences other than the seed.
      better: `lower` or `higher` for each metric, "" if unknown.
    """

    entries: list[Entry]
    task: str
    keys: list[str]
    groups: list[Group]
    better: dict[str, str]

    @property
    def columns(self) -> list[str]:
        """The metrics to show: those with a better direction, and those that a task names."""
        named = {name for entry in self.entries for name in entry.run.record.get("better", {})}
        shown = [name for name in self.better if self.better[name] or name in named]
        shown = [name for name in shown if name not in (*NOT_SHOWN, *LAST)]
        return [*shown, *(name for name in LAST if name in self.better)]

    @property
    def scores(self) -> list[str]:
        """The columns that measure how good a model is, in order."""
        return [name for name in self.columns if is_score(name) and self.better[name]]


@stage("reading the runs")
def runs_of(folders: Sequence[Path]) -> list[RunFiles]:
    """Returns the runs in the folders, each a run folder or a folder of run folders.

    Raises:
      UserError: a folder is neither, or a run's config.json is damaged.
    """
    runs: dict[Path, RunFiles] = {}
    for folder in folders:
        run_folders = [folder] if is_run(folder) else [folder / name for name in runs_in(folder)]
        if not run_folders:
            raise no_run(folder)
        runs |= {Path(os.path.abspath(path)): read(path) for path in run_folders}
    return list(runs.values())


def comparison(runs: list[RunFiles]) -> Comparison:
    """Compares one or more runs."""
    task = Counter(run.task for run in runs).most_common(1)[0][0]
    same_task = [run for run in runs if run.task == task]
    usual = json.loads(Counter(json.dumps(_scored(run), sort_keys=True) for run in same_task).most_common(1)[0][0])
    values_of = defaultdict[str, list[Any]](list)  # models may have different keys
    for key, value in (item for run in same_task for item in flatten(run.config)):
        values_of[key].append(value)
    keys = [key for key, values in values_of.items() if any(value != values[0] for value in values)]
    keys.sort(key=lambda key: key == SEED)
    paths = [Path(os.path.abspath(run.folder)) for run in runs]
    shared = Path(os.path.commonpath([path.parent for path in paths]))  # the folder that holds all the runs
    entries = []
    for run, path in zip(runs, paths, strict=True):
        values = {key: value for key, value in flatten(run.config) if key in keys}
        apart = ", ".join(f"another {name}" for name in differing_keys(usual, _scored(run)))
        entries.append(Entry(run, path.relative_to(shared).as_posix(), values, run.figures(), apart))
    compared = [entry for entry in entries if entry.run.task == task]
    # A metric's direction is that of the runs' tasks where they agree, else that of its name.
    names = dict.fromkeys(name for entry in compared for name in entry.figures)
    better = {name: better_of(name, *(entry.run.record.get("better", {}) for entry in compared)) for name in names}
    return Comparison(entries, task, keys, _groups(compared, keys), better)


def _scored(run: RunFiles) -> Record:
    return {"task": run.task, **run.record.get("scored", {})}


def _groups(entries: list[Entry], keys: list[str]) -> list[Group]:
    """Groups runs by arm. A label has the keys that differ, and the name of a run if that is not enough."""
    arms = defaultdict[str, list[Entry]](list)
    for entry in entries:
        arms[json.dumps(arm_of(entry.run.record), sort_keys=True)].append(entry)
    shown = [key for key in keys if key in CHOOSING or not key.startswith((SEED, *WITHOUT_EFFECT))]
    last = {key: key.rpartition(".")[2] for key in shown}  # not unique: sources of a mixture have the same keys
    short = {key: name if [*last.values()].count(name) == 1 else key for key, name in last.items()}
    groups: list[Group] = []
    for members in arms.values():
        values = members[0].values
        label = ", ".join(f"{short[key]}={values[key]}" for key in shown if key in values) or "all"
        taken = any(group.label == label for group in groups)  # the difference may lie outside the config, as in a file
        groups.append(Group(f"{label} ({members[0].name})" if taken else label, members))
    return groups


def arm_of(record: Record) -> dict[str, Any]:
    """Returns what identifies a run's arm: its config without the seed and keys without effect, and content digests."""
    config, digests = dict(flatten(record["config"])), record.get("digests", {})
    left_out = (SEED, *WITHOUT_EFFECT, *(name for name in ("data.path", "start.path") if name in digests))
    exceptions = (*CHOOSING, *(OF_AVERAGE if config.get("checkpoint.average", 1) > 1 else ()))
    keys = {key: value for key, value in config.items() if key in exceptions or not key.startswith(left_out)}
    return keys | {f"content of {name}": digest for name, digest in digests.items()}
