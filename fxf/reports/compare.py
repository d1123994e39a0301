"""Many runs side by side: what differs in their configs, which are seeds of one config, and which score the same."""

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
MOST_CHARACTERS = 60  # of a run's reason in the tables
LAST = ("train_loss", "tokens_per_second", "train_seconds", "parameters")  # columns after the others
OF_TIME = ("compile_seconds", "evaluate_seconds", "wall_seconds", "steps_per_second", "goodput")
NOT_SHOWN = ("steps", SEED, "examples", *OF_TIME)
# Keys that change neither training nor scores. Of `checkpoint` only those matter that choose the tested weights.
WITHOUT_EFFECT = ("parallel.", "log.", "checkpoint.", "data.prepared")
CHOOSING = ("checkpoint.best", "checkpoint.average")
OF_AVERAGE = ("checkpoint.every", "checkpoint.keep")  # matter for an average of several checkpoints
TOKENIZER = "tokenizer.json"  # its name among the digests


class Entry(NamedTuple):
    """A run among others.

    Attributes:
      name: a short name.
      values: the values of the config keys in which the runs differ.
      figures: the newest figures; None for one that is no number.
      apart: what else it scores than most runs, or nothing.
    """

    run: RunFiles
    name: str
    values: dict[str, Any]
    figures: dict[str, float | None]
    apart: str

    @property
    def is_compared(self) -> bool:
        """Whether the run's figures are final, and of the data that most runs score."""
        return self.run.state == FINISHED and not self.apart

    def is_lost(self, name: str) -> bool:
        """Returns whether the run diverged, or finished without a value of the figure."""
        return self.run.state == DIVERGED or (self.is_compared and self.figures.get(name, 0) is None)

    @property
    def said(self) -> str:
        """Why the run is not compared, in a few words."""
        said = "" if self.run.state == FINISHED else self.run.said
        return shortened("; ".join(filter(None, (self.apart, said))), MOST_CHARACTERS)


@dataclasses.dataclass(frozen=True, eq=False)
class Group:
    """Runs that differ only in the seed, and in keys without effect."""

    label: str
    entries: list[Entry]

    def of_seeds(self, name: str) -> list[float]:
        """Returns a figure of each seed, where it is a number: the mean over the finished runs of the seed."""
        found = defaultdict[Any, list[float]](list)
        for entry in self.entries:
            value = entry.figures.get(name)
            if entry.is_compared and value is not None:
                found[entry.run.config.get(SEED)].append(value)
        return list(map(statistics.fmean, found.values()))

    def n_seeds(self) -> int:
        """Returns for how many seeds a run has finished."""
        return len({entry.run.config.get(SEED) for entry in self.entries if entry.is_compared})

    def n_diverged(self, name: str = "") -> int:
        """Returns for how many seeds a run diverged, or finished without a value of the figure, if any."""
        return len({entry.run.config.get(SEED) for entry in self.entries if entry.is_lost(name)})


class Comparison(NamedTuple):
    """Runs, and what is to say of them together.

    Attributes:
      task: the task of most of the runs; only its runs are compared by figures.
      keys: the config keys in which the runs differ, the seed last.
      groups: the runs of the task, by what differs besides the seed.
      better: `lower` or `higher` for each figure, "" where neither is known to be better.
    """

    entries: list[Entry]
    task: str
    keys: list[str]
    groups: list[Group]
    better: dict[str, str]

    @property
    def columns(self) -> list[str]:
        """The names of the figures to show: those with a better side, and those that a task names."""
        named = {name for entry in self.entries for name in entry.run.record.get("better", {})}
        shown = [name for name in self.better if self.better[name] or name in named]
        shown = [name for name in shown if name not in (*NOT_SHOWN, *LAST)]
        return [*shown, *(name for name in LAST if name in self.better)]

    @property
    def scores(self) -> list[str]:
        """The columns that say how good a model is, in order."""
        return [name for name in self.columns if is_score(name) and self.better[name]]


@stage("reading the runs")
def runs_of(folders: Sequence[Path]) -> list[RunFiles]:
    """Returns the runs in the folders, each a run folder or a folder of run folders.

    Raises:
      UserError: a folder is neither, or a run's config.json is damaged.
    """
    found: dict[Path, RunFiles] = {}
    for folder in folders:
        places = [folder] if is_run(folder) else [folder / name for name in runs_in(folder)]
        if not places:
            raise no_run(folder)
        found |= {Path(os.path.abspath(place)): read(place) for place in places}
    return list(found.values())


def comparison(runs: list[RunFiles]) -> Comparison:
    """Returns what there is to say of the runs together; there must be one."""
    task = Counter(run.task for run in runs).most_common(1)[0][0]
    of_task = [run for run in runs if run.task == task]
    usual = json.loads(Counter(json.dumps(_scored(run), sort_keys=True) for run in of_task).most_common(1)[0][0])
    configs = [dict(flatten(run.config)) for run in of_task]
    keys = [key for key in dict.fromkeys(key for each in configs for key in each) if _differs(key, configs)]
    keys.sort(key=lambda key: key == SEED)
    paths = [Path(os.path.abspath(run.folder)) for run in runs]
    shared = Path(os.path.commonpath([path.parent for path in paths]))  # the folder that holds all the runs
    entries = []
    for run, path in zip(runs, paths, strict=True):
        values = {key: value for key, value in flatten(run.config) if key in keys}
        apart = ", ".join(f"another {name}" for name in differing_keys(usual, _scored(run)))
        entries.append(Entry(run, path.relative_to(shared).as_posix(), values, run.figures(), apart))
    compared = [entry for entry in entries if entry.run.task == task]
    return Comparison(entries, task, keys, _groups(compared, keys), _better(compared))


def _scored(run: RunFiles) -> Record:
    return {"task": run.task, **run.record.get("scored", {})}


def _differs(key: str, configs: Sequence[Record]) -> bool:
    """Returns whether the configs that have a key have several values of it; models differ in the keys they have."""
    values = [config[key] for config in configs if key in config]
    return any(value != values[0] for value in values)


def _better(entries: list[Entry]) -> dict[str, str]:
    """Returns which way each figure is better: as the runs' tasks say where they agree, else as its name says."""
    said = [entry.run.record.get("better", {}) for entry in entries]
    return {name: better_of(name, *said) for name in dict.fromkeys(name for entry in entries for name in entry.figures)}


def _groups(entries: list[Entry], keys: list[str]) -> list[Group]:
    """Returns the groups of the runs. A label has the keys that differ, and the name of a run if it must."""
    found = defaultdict[str, list[Entry]](list)
    for entry in entries:
        found[json.dumps(arm_of(entry.run.record), sort_keys=True)].append(entry)
    shown = [key for key in keys if key in CHOOSING or not key.startswith((SEED, *WITHOUT_EFFECT))]
    last = {key: key.rpartition(".")[2] for key in shown}  # which two sources of a mixture share
    short = {key: name if [*last.values()].count(name) == 1 else key for key, name in last.items()}
    groups: list[Group] = []
    for each in found.values():
        values = each[0].values
        label = ", ".join(f"{short[key]}={values[key]}" for key in shown if key in values) or "all"
        taken = any(group.label == label for group in groups)  # what differs is not in the config, as a file's content
        groups.append(Group(f"{label} ({each[0].name})" if taken else label, each))
    return groups


def arm_of(record: Record) -> dict[str, Any]:
    """Returns what a run was made from, without its seed and what has no effect; a path counts by its content."""
    config, digests = dict(flatten(record["config"])), record.get("digests", {})
    left_out = (SEED, *WITHOUT_EFFECT, *(name for name in ("data.path", "start.path") if name in digests))
    kept = (*CHOOSING, *(OF_AVERAGE if config.get("checkpoint.average", 1) > 1 else ()))
    keys = {key: value for key, value in config.items() if key in kept or not key.startswith(left_out)}
    return keys | {f"content of {name}": digest for name, digest in digests.items()}
