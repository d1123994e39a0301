"""Many runs side by side: what differs in their configs, which are seeds of one config, and which score the same."""

import json
import os
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fxf.config import differing_keys, flatten
from fxf.errors import UserError
from fxf.machine.status import stage
from fxf.pages import report
from fxf.pages.figures import figure, is_score
from fxf.pages.run_files import DIVERGED, FINISHED, Record, RunFiles, is_run, read

SEED = "seed"
MOST_CHARACTERS = 60  # of a run's reason in the tables
LAST = ("train_loss", "tokens_per_second", "train_seconds", "parameters")  # columns after the others
NOT_SHOWN = ("steps", SEED, "examples", "compile_seconds", "evaluate_seconds", "wall_seconds", "steps_per_second")
# Keys that change neither training nor scores. Of `checkpoint` only those matter that choose the tested weights.
WITHOUT_EFFECT = ("parallel.", "log.", "checkpoint.", "data.prepared")
CONTENT = "content of "  # before the name of a digest
OF_TRAINING = (  # keys of the sections task and data that change nothing of what is scored
    *("task.metrics", "data.prepared", "data.tokenizer", "data.vocab_size", "data.limit"),
    *("data.unpunctuated", "data.batch_tokens", "data.shapes"),
)
TOKENIZER = "tokenizer.json"  # its name among the digests
CHOOSING = ("checkpoint.best", "checkpoint.average")


class Group(NamedTuple):
    """Runs that differ only in the seed, and in keys without effect: their places among the runs, by seed."""

    label: str
    seeds: dict[Any, list[int]]

    @property
    def places(self) -> list[int]:
        return [place for places in self.seeds.values() for place in places]


class Comparison(NamedTuple):
    """Runs, and what is to say of them together.

    Attributes:
      names: a short name for each run.
      task: the task of most of the runs; only its runs are compared by figures.
      keys: the config keys in which the runs differ.
      values: the value of each of these keys, for each run.
      figures: the newest figures of each run; None for one that is no number.
      better: `lower` or `higher` for each figure, "" where neither is known to be better.
      columns: the names of the figures to show.
      groups: the runs of the task, by what differs besides the seed.
      apart: for each run, what else it scores than most finished ones, or nothing.
    """

    runs: list[RunFiles]
    names: list[str]
    task: str
    keys: list[str]
    values: list[dict[str, Any]]
    figures: list[dict[str, float | None]]
    better: dict[str, str]
    columns: list[str]
    groups: list[Group]
    apart: list[str]

    def is_compared(self, place: int) -> bool:
        """Returns whether the run's figures are final, and of the data that most runs score."""
        return self.runs[place].state == FINISHED and not self.apart[place]

    def said(self, place: int) -> str:
        said = "" if self.runs[place].state == FINISHED else self.runs[place].said.partition("; reload")[0]
        text = "; ".join(filter(None, (self.apart[place], said)))
        return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"

    def of_seeds(self, group: Group, name: str) -> list[float]:
        """Returns a figure of each seed of a group, where it is a number: the mean over the finished runs of a seed."""
        found = []
        for places in group.seeds.values():
            values = [self.figures[place].get(name) for place in places if self.is_compared(place)]
            if numbers := [value for value in values if value is not None]:
                found.append(statistics.fmean(numbers))
        return found

    def n_diverged(self, group: Group, name: str = "") -> int:
        """Returns for how many seeds a run of a group diverged, or finished without a value of the figure, if any."""
        return sum(any(self._has_none(place, name) for place in places) for places in group.seeds.values())

    def _has_none(self, place: int, name: str) -> bool:
        return self.runs[place].state == DIVERGED or (
            self.is_compared(place) and self.figures[place].get(name, 0) is None
        )

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
        try:
            if not folder.is_dir():
                raise UserError(f"{folder}: no such folder")
            places = [folder] if is_run(folder) else sorted(path for path in folder.iterdir() if is_run(path))
        except OSError as error:
            raise UserError(f"{folder}: {error.strerror}") from None
        if not places:
            raise UserError(f"{folder}: neither a run folder nor a folder of run folders: no config.json")
        found |= {Path(os.path.abspath(place)): read(place) for place in places}
    return list(found.values())


def task_of(run: RunFiles) -> str:
    return str(run.record["config"]["task"].get("name", ""))


def comparison(runs: list[RunFiles]) -> Comparison:
    """Returns what there is to say of the runs together; there must be one."""
    configs = [dict(flatten(run.record["config"])) for run in runs]
    task = Counter(map(task_of, runs)).most_common(1)[0][0]
    of_task = [place for place, run in enumerate(runs) if task_of(run) == task]
    first = configs[of_task[0]]
    keys = [key for key in first if any(configs[place].get(key) != first[key] for place in of_task)]
    keys.sort(key=lambda key: key == SEED)
    values = [{key: config.get(key) for key in keys if key in config} for config in configs]
    figures = [report.latest(run) for run in runs]
    better = _better([runs[place] for place in of_task], [figures[place] for place in of_task])
    return Comparison(
        runs=runs,
        names=_names([Path(os.path.abspath(run.folder)) for run in runs]),
        task=task,
        keys=keys,
        values=values,
        figures=figures,
        better=better,
        columns=_columns(better),
        groups=_groups(runs, of_task, values),
        apart=_apart(runs, of_task),
    )


def _names(folders: list[Path]) -> list[str]:
    """Returns the paths below the folder that holds all the runs."""
    shared = Path(os.path.commonpath([folder.parent for folder in folders]))
    return [folder.relative_to(shared).as_posix() for folder in folders]


def _better(runs: list[RunFiles], figures: list[dict[str, float | None]]) -> dict[str, str]:
    """Returns which way each figure is better: as the runs' tasks say where they agree, else as its name says."""
    found = {}
    for name in dict.fromkeys(name for of_run in figures for name in of_run):
        said = {run.record.get("better", {}).get(name) for run in runs} - {None}
        found[name] = said.pop() if len(said) == 1 else "" if said else figure(name).better
    return found


def _columns(better: Mapping[str, str]) -> list[str]:
    shown = [name for name in better if better[name] and name not in (*NOT_SHOWN, *LAST)]
    return [*shown, *(name for name in LAST if name in better)]


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


def _groups(runs: list[RunFiles], of_task: list[int], values: list[dict[str, Any]]) -> list[Group]:
    """Returns the groups of the runs at these places. A label has the keys that differ, and contents if it must."""
    found: dict[str, dict[Any, list[int]]] = {}
    for place in of_task:
        arm, seed = json.dumps(arm_of(runs[place].record), sort_keys=True), runs[place].record["config"].get(SEED)
        found.setdefault(arm, {}).setdefault(seed, []).append(place)
    labels = [_label(values[next(iter(seeds.values()))[0]]) for seeds in found.values()]
    if len(set(labels)) < len(labels):  # a file or its content differs
        arms = [json.loads(arm) for arm in found]
        differing = [name for name in arms[0] if any(arm.get(name) != arms[0][name] for arm in arms)]
        of_files = [name for name in differing if name.startswith(CONTENT)]
        labels = [
            ", ".join([*filter(None, [label]), *(f"{name} {str(arm.get(name))[:8]}" for name in of_files)])
            for label, arm in zip(labels, arms, strict=True)
        ]
    return [Group(label or "all", seeds) for label, seeds in zip(labels, found.values(), strict=True)]


def _label(values: Mapping[str, Any]) -> str:
    shown = (key for key in values if key in CHOOSING or not (key == SEED or key.startswith(WITHOUT_EFFECT)))
    return ", ".join(f"{key.rpartition('.')[2]}={values[key]}" for key in shown)


def _apart(runs: list[RunFiles], of_task: list[int]) -> list[str]:
    """Returns for each run what else it scores than most finished runs of the task, or nothing."""
    recorded = all("scored" in runs[place].record for place in of_task)
    scored = {place: scored_of(runs[place].record, recorded) for place in of_task}
    finished = [place for place in of_task if runs[place].state == FINISHED] or of_task
    most = Counter(json.dumps(scored[place], sort_keys=True) for place in finished).most_common(1)[0][0]
    apart = []
    for place, run in enumerate(runs):
        if place not in scored:
            apart.append(f"another task: {task_of(run)}")
            continue
        differing = differing_keys(json.loads(most), scored[place])
        apart.append(", ".join(f"another {name}" for name in differing) if differing else "")
    return apart


def scored_of(record: Record, recorded: bool = True) -> dict[str, Any]:
    """Returns what tells the data that a run scores from other data.

    Args:
      recorded: whether it is what the run's task says; else it is all that may change these data.
    """
    if recorded and "scored" in record:
        return record["scored"]
    made_by = {*record.get("files", ()), *record.get("registered_by", {}).get("sha256", ()), "start.path"}
    contents = {f"{CONTENT}{name}": of for name, of in record.get("digests", {}).items() if name not in made_by}
    others = (*OF_TRAINING, *(["data.path"] if contents else []))
    keys = {key: value for key, value in flatten(record["config"]) if key.startswith(("task.", "data."))}
    return {**{key: value for key, value in keys.items() if key not in others}, **contents}


def tokenizer_of(run: RunFiles) -> str | None:
    """Returns the digest of the tokenizer that a run keeps."""
    return run.record.get("digests", {}).get(TOKENIZER)
