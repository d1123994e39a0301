"""The files of a run folder, read without JAX: what the run was made from, its figures, and how it stands."""

import fcntl
import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

from fxf.errors import UserError, nearest, one_line
from fxf.files import read_json

CONFIG, RESULT, LOCK = "config.json", "result.json", "lock"
RECORDS, SAMPLES = "metrics.jsonl", "samples.jsonl"
ENDED = "ended.txt"  # why training ended before its last step
INSIDE = "inside.json"  # what `fxf.views.inside` found in the trained model

FINISHED, RUNNING, STOPPED, FAILED, DIVERGED = "finished", "running", "stopped", "failed", "diverged"
_DIVERGED = re.compile(r"step [\d,]+: the loss is ((nan|-?inf)\b|.* norm (nan|inf)\b)")
NO_VALUE = "no value"  # stands for a figure that is NaN, infinite or null
OBJECTS = ("overrides", "expected", "versions", "digests", "scored", "better")  # of config.json, if they are there
MOST_RUNS = 5  # that an error names
LAST_BYTES = 2**16  # of a sweep's log, whose last line may name an error
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


def read(folder: Path) -> RunFiles:
    """Returns what stands in a run folder, also of a run that goes on.

    Raises:
      UserError: there is no config.json, or it is damaged.
    """
    try:
        record = read_json(folder / CONFIG, "a run's config")
    except FileNotFoundError:
        raise no_run(folder) from None
    if not isinstance(config := record.get("config"), dict) or not isinstance(config.get("task"), dict):
        raise UserError(f"{folder / CONFIG}: not a run's config: it has no config of a task")
    parts = {"config.train": config.get("train", {}), **{name: record.get(name, {}) for name in OBJECTS}}
    for name, part in parts.items():
        if not isinstance(part, dict):
            raise UserError(f"{folder / CONFIG}: {name}: expected an object, got {one_line(repr(part))}")
    metrics, result = _lines(folder / RECORDS), _object(folder / RESULT)
    state, said = _state(folder, config, metrics, result)
    samples = [record for record in _lines(folder / SAMPLES) if _are_rows(record.get("rows"))]
    return RunFiles(folder, record, metrics, samples, result, _inside(folder / INSIDE), state, said)


def is_number(value: Any) -> bool:
    largest = sys.float_info.max
    return isinstance(value, int | float) and not isinstance(value, bool) and -largest <= value <= largest


def is_no_value(value: Any) -> bool:
    """Returns whether a figure is NaN, infinite or null."""
    return value is None or (isinstance(value, float) and not is_number(value))


def is_run(folder: Path) -> bool:
    return (folder / CONFIG).is_file()


def no_run(folder: Path) -> UserError:
    """Returns the error for a folder without a run. It names the runs in it, or the one that may be meant."""
    if is_run(folder.parent):
        hint = f"; did you mean {folder.parent}?"
    elif inside := _runs_in(folder):
        others = f" and {len(inside) - MOST_RUNS} more" if len(inside) > MOST_RUNS else ""
        hint = f"; the runs in it are {', '.join(inside[:MOST_RUNS])}{others}"
    else:
        hint = nearest(folder.name, _runs_in(folder.parent))
    why = f"{CONFIG} is missing" if folder.exists() else "no such folder"
    return UserError(f"{folder}: no run here ({why}){hint}")


def _runs_in(folder: Path) -> list[str]:
    """Returns the names of the runs in a folder, none if it cannot be read."""
    try:
        return sorted(path.name for path in folder.iterdir() if is_run(path))
    except OSError:
        return []


def _state(folder: Path, config: Record, metrics: list[Record], result: Record) -> tuple[str, str]:
    """Returns how the run stands, and a few words about it."""
    steps = config.get("train", {}).get("steps", "?")
    at = f"step {metrics[-1]['step'] if metrics else 0:,} of {f'{steps:,}' if is_number(steps) else steps}"
    if result:
        return FINISHED, at if metrics else ""
    if _is_locked(folder / LOCK):
        return RUNNING, f"{at}; reload the page for newer figures"
    failed, why = _why_it_ended(folder)
    if why:
        return (DIVERGED if _DIVERGED.match(why) else FAILED if failed else STOPPED), f"{at}; {why}"
    return STOPPED, at


def has_diverged(folder: Path) -> bool:
    """Returns whether the run in a folder ended because its loss or its gradient was not finite."""
    return bool(_DIVERGED.match(_why_it_ended(folder)[1]))


def _why_it_ended(folder: Path) -> tuple[bool, str]:
    """Returns whether the run failed, and why it ended, from ended.txt or from the last line of a sweep's log."""
    why = _text(folder / ENDED).strip()
    if not why:
        line = next((line for line in reversed(_text(folder / "log.txt").splitlines()) if line.strip()), "")
        why = line if line.startswith(ERROR) else ""
    return why.startswith(ERROR), one_line(why.removeprefix(ERROR))


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
    """Returns the end of a text file, or nothing without one. A pipe would wait for a writer."""
    try:
        return path.read_bytes()[-LAST_BYTES:].decode("utf-8", errors="replace") if path.is_file() else ""
    except OSError:
        return ""


def _object(path: Path) -> Record:
    """Returns the object in a JSON file, or an empty one if the file is missing or damaged."""
    try:
        return read_json(path, "an object")
    except (FileNotFoundError, UserError):
        return {}


def _inside(path: Path) -> Record:
    """Returns the object in inside.json, or an empty one if it has not what the page shows."""
    found = _object(path)
    lists = all(isinstance(found.get(name), list) for name in ("weights", "examples"))
    return found if lists and is_number(found.get("step")) else {}


def _are_rows(rows: Any) -> bool:
    """Returns whether these are the rows of a sample: each a prompt, what was expected, an answer, maybe a true."""

    def is_row(row: Any) -> bool:
        if not isinstance(row, list) or not (len(row) == 3 or row[3:] == [True]) or not isinstance(row[2], str):
            return False
        return all(text is None or isinstance(text, str) for text in row[:2])

    return isinstance(rows, list) and all(map(is_row, rows))


def _lines(path: Path) -> list[Record]:
    """Returns the objects with a step in a file of JSON lines. It leaves out other lines, such as an incomplete one."""
    try:
        content = path.read_bytes().decode("utf-8", errors="replace") if path.is_file() else ""
    except OSError:
        return []
    found = []
    for line in content.splitlines():
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and type(value.get("step")) is int:
            found.append(value)
    return found
