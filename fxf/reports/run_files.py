"""The files of a run folder, read without JAX: what the run was made from, its figures, and how it stands."""

import fcntl
import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

from fxf.base.errors import UserError, nearest, one_line
from fxf.base.files import read_json

CONFIG, RESULT, LOCK, MODEL = "config.json", "result.json", "lock", "model.safetensors"
RECORDS, SAMPLES, CHECKPOINTS = "metrics.jsonl", "samples.jsonl", "checkpoints"
FROM = "from"  # the key of config.json with what --from named
ENDED = "ended.txt"  # why training ended before its last step
INSIDE = "inside.json"  # what `fxf.runs.inside` found in the trained model

FINISHED, RUNNING, STOPPED, FAILED, DIVERGED = "finished", "running", "stopped", "failed", "diverged"
_DIVERGED = re.compile(r"step [\d,]+: the loss is ((nan|-?inf)\b|.* norm (nan|inf)\b)")
NO_VALUE = "no value"  # stands for a figure that is NaN, infinite or null
MOST_RUNS = 5  # that an error names
ERROR = "error: "

Record = dict[str, Any]


class RunFiles(NamedTuple):
    """What stands in a run folder.

    Attributes:
      record: config.json.
      metrics: the records of metrics.jsonl, each with its `step`.
      samples: the records of samples.jsonl, each with `step`, `test`, and `rows` of (prompt, expected, answer),
        and true behind an answer that was cut off.
      result: result.json, empty without one.
      inside: inside.json, empty without one.
      state: finished, running, stopped, failed or diverged.
      said: how far the run has come, or why it failed.
    """

    folder: Path
    record: Record
    metrics: list[Record]
    samples: list[Record]
    result: Record
    inside: Record
    state: str
    said: str

    @property
    def config(self) -> Record:
        return self.record["config"]

    @property
    def task(self) -> str:
        return str(self.config["task"].get("name", ""))

    @property
    def model(self) -> str:
        return str(self.config.get("model", {}).get("name", ""))

    def figures(self) -> dict[str, float | None]:
        """Returns the newest value of each figure: of the result, or of the records of a run that has none yet.

        A figure that is NaN, infinite or null is None.
        """
        if self.state == FINISHED:
            return _figures(self.result)
        found = {name: value for record in self.metrics for name, value in _figures(record).items()}
        return {("train_loss" if name == "loss" else name): value for name, value in found.items() if name != "step"}

    def curves(self) -> dict[str, list[tuple[int, float]]]:
        """Returns the points (step, value) of each figure; the numbers of examples and the time are no figures."""
        found: dict[str, list[tuple[int, float]]] = {}
        for record in self.metrics:
            for name, value in record.items():
                if name != "step" and is_number(value) and not re.match("examples(_|$)|wall_seconds", name):
                    found.setdefault(name, []).append((record["step"], value))
        return found

    def axes(self) -> dict[str, list[tuple[int, float]]]:
        """Returns the points (step, tokens) and (step, seconds) of training; without compiling and evaluating."""
        found: dict[str, list[tuple[int, float]]] = {"tokens": [(0, 0.0)], "seconds": [(0, 0.0)]}
        for record in self.metrics:
            speeds = {name: record.get(f"{name}_per_second") for name in ("steps", "tokens")}
            if is_number(speeds["steps"]) and speeds["steps"] and is_number(speeds["tokens"]):
                before, seconds = found["seconds"][-1]
                more = (record["step"] - before) / speeds["steps"]
                found["seconds"].append((record["step"], seconds + more))
                found["tokens"].append((record["step"], found["tokens"][-1][1] + more * speeds["tokens"]))
        return found if len(found["seconds"]) > 1 else {}


def read(folder: Path) -> RunFiles:
    """Returns what stands in a run folder, also of a run that goes on.

    Raises:
      UserError: there is no config.json, or it is damaged, or that of another program, as an exported model has.
    """
    if not is_run(folder):
        raise no_run(folder)
    record = read_json(folder / CONFIG, "a run's config")
    if not isinstance(record.get("config"), dict) or not isinstance(record["config"].get("task"), dict):
        raise UserError(f"{folder / CONFIG}: not a run's config: it has no config with a task")
    metrics, samples, result = lines(folder / RECORDS), lines(folder / SAMPLES), _object(folder / RESULT)
    state, said = _state(folder, record["config"], metrics, result)
    return RunFiles(folder, record, metrics, samples, result, _object(folder / INSIDE), state, said)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def is_no_value(value: Any) -> bool:
    """Returns whether a figure is NaN, infinite or null."""
    return value is None or (isinstance(value, float) and not is_number(value))


def is_run(folder: Path) -> bool:
    return (folder / CONFIG).is_file() and not is_exported(folder)


def is_exported(folder: Path) -> bool:
    """Returns whether a folder has the weights of an exported model, whose config.json is no run's, and no records."""
    return (folder / MODEL).is_file() and not (folder / RECORDS).is_file()


def no_run(folder: Path) -> UserError:
    """Returns the error for a folder without a run. It names the runs in it, or the one that may be meant."""
    if is_run(folder.parent):
        hint = f"; did you mean {folder.parent}?"
    elif inside := runs_in(folder):
        hint = f"; the runs in it are {', '.join(inside[:MOST_RUNS])}{', …' if inside[MOST_RUNS:] else ''}"
    else:
        hint = nearest(folder.name, runs_in(folder.parent))
    missing = "it is an exported model" if is_exported(folder) else f"{CONFIG} is missing"
    why = missing if folder.is_dir() else "it is a file" if folder.exists() else "no such folder"
    return UserError(f"{folder}: no run here ({why}){hint}")


def runs_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if is_run(path)) if folder.is_dir() else []


def _figures(record: Record) -> dict[str, float | None]:
    figures = {name: value for name, value in record.items() if is_number(value) or is_no_value(value)}
    return {name: value if is_number(value) else None for name, value in figures.items()}


def _state(folder: Path, config: Record, metrics: list[Record], result: Record) -> tuple[str, str]:
    """Returns how the run stands, and a few words about it."""
    steps = config.get("train", {}).get("steps", "?")
    at = f"step {metrics[-1]['step'] if metrics else 0:,} of {f'{steps:,}' if is_number(steps) else steps}"
    if result:
        return FINISHED, at if metrics else ""
    if _is_locked(folder / LOCK):
        return RUNNING, at
    why = _text(folder / ENDED).strip()
    failed, why = why.startswith(ERROR), one_line(why.removeprefix(ERROR))
    if not why:
        return STOPPED, at
    return (DIVERGED if _DIVERGED.match(why) else FAILED if failed else STOPPED), f"{at}; {why}"


def _is_locked(path: Path) -> bool:
    """Returns whether a process trains the run. It asks for a lock of its own, which ends at once."""
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (OSError, ValueError, AttributeError):  # no lock, or a file system without locks, as in a bucket
        return False
    return False


def _text(path: Path) -> str:
    """Returns a text file, or nothing without one. A pipe would wait for a writer."""
    return path.read_bytes().decode("utf-8", errors="replace") if path.is_file() else ""


def _object(path: Path) -> Record:
    """Returns the object in a JSON file, or an empty one if the file is missing or damaged."""
    try:
        return read_json(path, "an object")
    except (FileNotFoundError, UserError):
        return {}


def lines(path: Path) -> list[Record]:
    """Returns the objects with a step in a file of JSON lines. It leaves out other lines, such as an incomplete one."""
    found = []
    for line in _text(path).splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict) and type(value.get("step")) is int:
            found.append(value)
    return found
