"""The files of a run folder, read without JAX: the run's config, metrics, samples, result and state."""

import fcntl
import json
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from fxf.base.errors import UserError, nearest, one_line
from fxf.base.files import read_json

CONFIG, RESULT, LOCK, MODEL = "config.json", "result.json", "lock", "model.safetensors"
RECORDS, SAMPLES, CHECKPOINTS = "metrics.jsonl", "samples.jsonl", "checkpoints"
FROM = "from"  # the key of config.json for the value of --from
ENDED = "ended.txt"  # why training ended before its last step
INSIDE = "inside.json"  # attention, positions and weights of the trained model, from `fxf.runs.inside`

FINISHED, RUNNING, STOPPED, FAILED, DIVERGED = "finished", "running", "stopped", "failed", "diverged"
_DIVERGED = re.compile(r"step [\d,]+: the loss is ((nan|-?inf)\b|.* norm (nan|inf)\b)")
NO_VALUE = "no value"  # shown for a metric that is NaN, infinite or null
MOST_RUNS = 5  # in an error message
NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?)")
ERROR = "error: "

Record = dict[str, Any]


class RunFiles(NamedTuple):
    """The content of a run folder.

    Attributes:
      record: config.json.
      metrics: the records of metrics.jsonl, each with its `step`.
      samples: the records of samples.jsonl, each with `step`, `test`, and `rows` of (prompt, expected, answer); true
        follows an answer that was cut off.
      result: result.json, {} without one.
      inside: inside.json, {} without one.
      state: finished, running, stopped, failed or diverged.
      said: the last step, and why the run ended early.
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
        """Returns the latest value of each metric: from the result, or from the records if there is no result yet.

        A metric that is NaN, infinite or null is None.
        """
        if self.state == FINISHED:
            return _figures(self.result)
        latest = {name: value for record in self.metrics for name, value in _figures(record).items()}
        return {("train_loss" if name == "loss" else name): value for name, value in latest.items() if name != "step"}

    def curves(self) -> dict[str, list[tuple[int, float]]]:
        """Returns the points (step, value) of each metric, without the numbers of examples and the wall time."""
        curves: dict[str, list[tuple[int, float]]] = {}
        for record in self.metrics:
            for name, value in record.items():
                if is_number(value):
                    curves.setdefault(name, []).append((record["step"], value))
        return {name: curves[name] for name in curves if not re.match("step$|examples(_|$)|wall_seconds", name)}

    def axes(self) -> dict[str, list[tuple[int, float]]]:
        """Returns the points (step, tokens) and (step, seconds) of training, without compilation and evaluation."""
        axes: dict[str, list[tuple[int, float]]] = {"tokens": [(0, 0.0)], "seconds": [(0, 0.0)]}
        for record in self.metrics:
            speeds = {name: record.get(f"{name}_per_second") for name in ("steps", "tokens")}
            if is_number(speeds["steps"]) and speeds["steps"] and is_number(speeds["tokens"]):
                step, seconds = axes["seconds"][-1]
                more = (record["step"] - step) / speeds["steps"]
                axes["seconds"].append((record["step"], seconds + more))
                axes["tokens"].append((record["step"], axes["tokens"][-1][1] + more * speeds["tokens"]))
        return axes if len(axes["seconds"]) > 1 else {}


def read(folder: Path) -> RunFiles:
    """Reads a run folder, also while the run goes on.

    Raises:
      UserError: config.json is missing, damaged or not a run's, such as an exported model's.
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
    """Returns whether a metric is NaN, infinite or null."""
    return value is None or (isinstance(value, float) and not is_number(value))


def is_run(folder: Path) -> bool:
    return (folder / CONFIG).is_file() and not is_exported(folder)


def is_exported(folder: Path) -> bool:
    """Returns whether a folder holds an exported model, whose config.json is not a run's: weights, but no records."""
    return (folder / MODEL).is_file() and not (folder / RECORDS).is_file()


def no_run(folder: Path) -> UserError:
    """Returns the error for a folder without a run. It names the runs in the folder, or a run with a similar name."""
    if run := next(filter(is_run, folder.parents[:2]), None):  # of a folder in a run, such as checkpoints/STEP
        hint = f"; did you mean {run}?"
    elif inside := runs_in(folder):
        hint = f"; the runs in it are {', '.join(inside[:MOST_RUNS])}{', …' if inside[MOST_RUNS:] else ''}"
    else:
        hint = nearest(folder.name, runs_in(folder.parent))
    missing = "it is an exported model" if is_exported(folder) else f"{CONFIG} is missing"
    why = missing if folder.is_dir() else "it is a file" if folder.exists() else "no such folder"
    return UserError(f"{folder}: no run here ({why}){hint}")


def runs_in(folder: Path) -> list[str]:
    """Returns the names of the runs in a folder, in order."""
    names = (path.name for path in folder.iterdir() if is_run(path)) if folder.is_dir() else ()
    return sorted(names, key=by_numbers)


def by_numbers(name: str) -> list[Any]:
    """Returns what puts names in the order of the numbers in them: first-2 before first-10, 0.003 before 0.01."""
    return [float(part) if i % 2 else part for i, part in enumerate(NUMBER.split(name))]


def _figures(record: Record) -> dict[str, float | None]:
    figures = {name: value for name, value in record.items() if is_number(value) or is_no_value(value)}
    return {name: value if is_number(value) else None for name, value in figures.items()}


def _state(folder: Path, config: Record, metrics: list[Record], result: Record) -> tuple[str, str]:
    """Returns the state of the run, and its last step with the reason for an early end."""
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
    """Returns whether a process trains the run, by trying a shared lock, which closing the file releases."""
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (OSError, ValueError, AttributeError) as error:  # others: no lock file, or no locks, as in a bucket
        return isinstance(error, BlockingIOError)
    return False


def _text(path: Path) -> str:
    """Returns the content of a text file, "" if there is no regular file. A pipe would wait for a writer."""
    return path.read_bytes().decode("utf-8", errors="replace") if path.is_file() else ""


def _object(path: Path) -> Record:
    """Returns the object in a JSON file, {} if the file is missing or damaged."""
    with suppress(FileNotFoundError, UserError):
        return read_json(path, "an object")
    return {}


def lines(path: Path) -> list[Record]:
    """Returns the objects with a step in a file of JSON lines. Other lines, such as an incomplete one, are skipped."""
    records = []
    for line in _text(path).splitlines():
        with suppress(ValueError):
            value = json.loads(line)
            if isinstance(value, dict) and type(value.get("step")) is int:
                records.append(value)
    return records
