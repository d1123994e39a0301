"""Many runs side by side: what differs in their configs, which are seeds of one config, and which score the same."""

import dataclasses
import json
import os
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fxf.base.config import differing_keys, flatten
from fxf.base.errors import UserError, shortened
from fxf.base.status import stage
from fxf.reports.figures import figure, is_score
from fxf.reports.run_files import DIVERGED, FINISHED, Record, RunFiles, is_run, read

SEED = "seed"
MOST_CHARACTERS = 60  # of a run's reason in the tables
LAST = ("train_loss", "tokens_per_second", "train_seconds", "parameters")  # columns after the others
OF_TIME = ("compile_seconds", "evaluate_seconds", "wall_seconds", "steps_per_second", "goodput")
NOT_SHOWN = ("steps", SEED, "examples", *OF_TIME)
# Keys that change neither training nor scores. Of `checkpoint` only those matter that choose the tested weights.
WITHOUT_EFFECT = ("parallel.", "log.", "checkpoint.", "data.prepared")
CHOOSING = ("checkpoint.best", "checkpoint.average")
CONTENT = "content of "  # before the name of a digest
TOKENIZER = "tokenizer.json"  # its name among the digests


@dataclasses.dataclass(frozen=True)
class Entry:
    """A run among others.

    Attributes:
      name: a short name.
      values: the values of the config keys in which the runs differ.
      figures: the newest figures; None for one that is no number.
      apart: what else it scores than most finished runs, or nothing.
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

    @property
    def said(self) -> str:
        """Why the run is not compared, in a few words."""
        said = "" if self.run.state == FINISHED else self.run.said
        return shortened("; ".join(filter(None, (self.apart, said))), MOST_CHARACTERS)

    def has_diverged(self, name: str = "") -> bool:
        """Returns whether the run diverged, or finished without a value of the figure, if any."""
        return self.run.state == DIVERGED or (self.is_compared and self.figures.get(name, 0) is None)


@dataclasses.dataclass(frozen=True, eq=False)
class Group:
    """Runs that differ only in the seed, and in keys without effect, by seed."""

    label: str
    seeds: dict[Any, list[Entry]]

    @property
    def entries(self) -> list[Entry]:
        return [entry for entries in self.seeds.values() for entry in entries]

    def of_seeds(self, name: str) -> list[float]:
        """Returns a figure of each seed, where it is a number: the mean over the finished runs of the seed."""
        found = []
        for entries in self.seeds.values():
            values = [entry.figures.get(name) for entry in entries if entry.is_compared]
            if numbers := [value for value in values if value is not None]:
                found.append(statistics.fmean(numbers))
        return found

    def n_seeds(self) -> int:
        """Returns for how many seeds a run has finished."""
        return sum(any(entry.is_compared for entry in entries) for entries in self.seeds.values())

    def n_diverged(self, name: str = "") -> int:
        """Returns for how many seeds a run diverged, or finished without a value of the figure, if any."""
        return sum(any(entry.has_diverged(name) for entry in entries) for entries in self.seeds.values())


@dataclasses.dataclass(frozen=True)
class Comparison:
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
    def runs(self) -> list[RunFiles]:
        return [entry.run for entry in self.entries]

    @property
    def columns(self) -> list[str]:
        """The names of the figures to show."""
        shown = [name for name in self.better if self.better[name] and name not in (*NOT_SHOWN, *LAST)]
        return [*shown, *(name for name in LAST if name in self.better)]

    def scores(self) -> list[str]:
        """Returns the columns that say how good a model is, in order."""
        return [name for name in self.columns if is_score(name) and self.better[name]]


@stage("reading the runs")
def runs_of(folders: Sequence[Path]) -> list[RunFiles]:
    """Returns the runs in the folders, each a run folder or a folder of run folders.

    Raises:
      UserError: a folder is neither, or a run's config.json is damaged.
    """
    found: dict[Path, RunFiles] = {}
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"{folder}: no such folder")
        places = [folder] if is_run(folder) else sorted(path for path in folder.iterdir() if is_run(path))
        if not places:
            raise UserError(f"{folder}: neither a run folder nor a folder of run folders: no config.json")
        found |= {Path(os.path.abspath(place)): read(place) for place in places}
    return list(found.values())


def comparison(runs: list[RunFiles]) -> Comparison:
    """Returns what there is to say of the runs together; there must be one."""
    task = Counter(run.task for run in runs).most_common(1)[0][0]
    of_task = [run for run in runs if run.task == task]
    keys = sorted(_differing(of_task), key=lambda key: key == SEED)
    paths = [Path(os.path.abspath(run.folder)) for run in runs]
    shared = Path(os.path.commonpath([path.parent for path in paths]))  # the folder that holds all the runs
    apart = _apart(of_task)
    entries = []
    for run, path in zip(runs, paths, strict=True):
        config = dict(flatten(run.config))
        values = {key: config[key] for key in keys if key in config}
        why = apart[run.folder] if run.task == task else f"another task: {run.task}"
        entries.append(Entry(run, path.relative_to(shared).as_posix(), values, run.figures(), why))
    compared = [entry for entry in entries if entry.run.task == task]
    return Comparison(entries, task, keys, _groups(compared), _better(compared))


def _differing(runs: list[RunFiles]) -> list[str]:
    """Returns the keys in which runs differ; of unlike models those that all have, or that differ among one's runs."""
    kinds: dict[str, list[Record]] = {}
    for run in runs:
        kinds.setdefault(run.model, []).append(dict(flatten(run.config)))
    configs = [config for kind in kinds.values() for config in kind]
    shared = set[str].intersection(*map(set, configs))

    def differs(key: str, among: list[Record]) -> bool:
        return any(config.get(key) != among[0].get(key) for config in among)

    return [
        key
        for key in dict.fromkeys(key for config in configs for key in config)
        if (key in shared and differs(key, configs)) or any(differs(key, kind) for kind in kinds.values())
    ]


def _better(entries: list[Entry]) -> dict[str, str]:
    """Returns which way each figure is better: as the runs' tasks say where they agree, else as its name says."""
    found = {}
    for name in dict.fromkeys(name for entry in entries for name in entry.figures):
        said = {entry.run.record.get("better", {}).get(name) for entry in entries} - {None}
        found[name] = said.pop() if len(said) == 1 else "" if said else figure(name).better
    return found


def arm_of(record: Record) -> dict[str, Any]:
    """Returns what a run was made from, without its seed and what has no effect; a path counts by its content."""
    config, digests = dict(flatten(record["config"])), record.get("digests", {})
    by_content = tuple(name for name in ("data.path", "start.path") if name in digests)
    averaged = ("checkpoint.every", "checkpoint.keep") if config.get("checkpoint.average", 1) > 1 else ()
    kept = {
        key: value
        for key, value in config.items()
        if key in (*CHOOSING, *averaged) or not (key == SEED or key.startswith((*WITHOUT_EFFECT, *by_content)))
    }
    return {**kept, **{f"{CONTENT}{name}": value for name, value in digests.items()}}


def _groups(entries: list[Entry]) -> list[Group]:
    """Returns the groups of the runs. A label has the keys that differ, and contents if it must."""
    found: dict[str, dict[Any, list[Entry]]] = {}
    for entry in entries:
        arm = json.dumps(arm_of(entry.run.record), sort_keys=True)
        found.setdefault(arm, {}).setdefault(entry.run.config.get(SEED), []).append(entry)
    arms = [json.loads(arm) for arm in found]
    labels = [_label(next(iter(seeds.values()))[0].values) for seeds in found.values()]
    if len(set(labels)) < len(labels):  # a file or its content differs
        of_files = [name for name in arms[0] if name.startswith(CONTENT) and len({arm.get(name) for arm in arms}) > 1]
        contents = [[f"{name} {str(arm.get(name))[:8]}" for name in of_files] for arm in arms]
        labels = [", ".join(filter(None, [label, *each])) for label, each in zip(labels, contents, strict=True)]
    return [Group(label or "all", seeds) for label, seeds in zip(labels, found.values(), strict=True)]


def _label(values: Mapping[str, Any]) -> str:
    shown = (key for key in values if key in CHOOSING or not (key == SEED or key.startswith(WITHOUT_EFFECT)))
    return ", ".join(f"{key.rpartition('.')[2]}={values[key]}" for key in shown)


def _apart(runs: list[RunFiles]) -> dict[Path, str]:
    """Returns for each run of a task what else it scores than most finished ones, or nothing."""
    scored = {run.folder: run.record.get("scored", {}) for run in runs}
    finished = [run for run in runs if run.state == FINISHED] or runs
    texts = Counter(json.dumps(scored[run.folder], sort_keys=True) for run in finished)
    most = json.loads(texts.most_common(1)[0][0])
    return {
        folder: ", ".join(f"another {name}" for name in differing_keys(most, each)) for folder, each in scored.items()
    }


def tokenizer_of(run: RunFiles) -> str | None:
    """Returns the digest of the tokenizer that a run keeps."""
    return run.record.get("digests", {}).get(TOKENIZER)
