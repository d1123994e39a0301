"""The run folder: config.json, metrics.jsonl, checkpoints/, result.json and others, and the task's own files.

config.json records what the run is made from: its config, the digests of its data and of the task's files, and its
code. The run's identity is the part of this record that can change the training. Checkpoints and result carry it.
"""

import fcntl
import json
import logging
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from fxf.base.config import differences, differing_keys, flatten
from fxf.base.errors import UserError
from fxf.base.files import digest, is_remote, read_file, read_json, to_json, write_atomically
from fxf.reports.run_files import CHECKPOINTS, CONFIG, LOCK, RECORDS, RESULT, is_run, lines, no_run
from fxf.runs.code_version import made_by, other_code
from fxf.runs.guests import GUESTS
from fxf.training import processes
from fxf.training.checkpoint_files import require_no_pattern, steps_in

log = logging.getLogger(__name__)

SOURCE, ADAPTERS = "start.path", "start.adapters"  # the names of their digests
# Keys and sections that change neither weights nor data. Paths are among them, because the digest of the data counts,
# and train.steps, because a run may go on to more steps.
NOT_TRAINING = (
    *("parallel.", "log.", "checkpoint.every", "checkpoint.minutes", "checkpoint.keep"),
    *("data.path", "data.prepared", "data.sources.", "start.path", "start.adapters", "train.steps"),
)
# Keys that choose what is scored. With train.patience they also decide when training ends.
SCORING = ("task.metrics", "decode.", "checkpoint.best", "checkpoint.average")
WHATEVER_STEPS = ("constant", "inverse_sqrt")  # schedules whose rates do not depend on train.steps

Identity = dict[str, Any]


class RunInputs(NamedTuple):
    """What a run is made from: its folder, config, the digests of its data, and the texts that it keeps, by name."""

    workdir: Path
    config: dict[str, Any]
    data: Mapping[str, str]
    files: Mapping[str, str]

    @property
    def digests(self) -> dict[str, str]:
        return {**self.data, **{name: digest(text.encode()) for name, text in self.files.items()}}

    @property
    def identity(self) -> Identity:
        return identity_of(self.config, self.digests)


def identity_of(config: Mapping[str, Any], digests: Mapping[str, str]) -> Identity:
    """Returns a run's identity by name: the keys that can change its training, and the digests of its data and files.

    Args:
      config: the resolved config.
      digests: of the data and of the task's files, by name.
    """
    others = NOT_TRAINING if config["train"].get("patience") else (*NOT_TRAINING, *SCORING)
    keys = {key: value for key, value in flatten(config) if not key.startswith(others)}
    return {**keys, **{f"content of {name}": value for name, value in digests.items()}}


def identity_digest(identity: Identity) -> str:
    return digest(json.dumps(identity, sort_keys=True).encode())


def open_for_training(made: RunInputs, origin: dict[str, Any]) -> Identity:
    """Writes what the run is made from, or checks that the run in the folder has the same identity.

    It records other differences, which cannot change the training, and logs them in a line. If there are several
    processes, the first one writes.

    Args:
      origin: the origin of the config: file and overrides; a resumed run records those of the newest call.

    Returns:
      The run's identity.

    Raises:
      UserError: the folder cannot be written, or holds another run.
    """
    workdir, config, _, files = made
    record, identity = require_same_run(made), made.identity
    if not processes.is_first():
        return identity
    for name, text in files.items():  # one that a run before its first record left may be damaged
        write_atomically(workdir / name, text)
    if record is None:
        made_of = {"identity": identity_digest(identity), "digests": made.digests, "files": list(files)}
        _write(workdir / CONFIG, {"config": config, **origin, **made_of, **made_by()})
        return identity
    keys, code, guests = differences(record["config"], config), other_code(record), origin.get(GUESTS, {})
    if keys:
        schedule, n = config["optimizer"]["schedule"], config["train"]["steps"]
        is_other = _steps(record) != n and schedule not in WHATEVER_STEPS
        other = f"; optimizer.schedule '{schedule}' depends on train.steps, so this is not the run of {n} steps"
        log.warning("warning: %s: goes on with other keys: %s%s", workdir, keys, other if is_other else "")
    if code:
        log.warning("warning: %s: goes on with other code: %s", workdir, differences(*code))
    if keys or code or guests != record.get(GUESTS, {}):
        (workdir / RESULT).unlink(missing_ok=True)  # of fewer steps, or damaged
        change = {"time": time.strftime("%F %T"), "keys": keys} | (code[1] if code else {})
        history = [*record.get("changes", []), change]
        _write(workdir / CONFIG, {**record, **origin, "config": config, "changes": history})
    return identity


def finished(made: RunInputs) -> dict[str, Any] | None:
    """Returns the metrics of the run in the folder; None if it has not finished.

    Raises:
      UserError: the folder holds another run, or a finished one with other keys of scoring.
    """
    record, config, workdir = require_same_run(made), made.config, made.workdir
    if record is None or _steps(record) < config["train"]["steps"]:
        return None
    result = read_result(workdir, made.identity)
    for key in differing_keys(record["config"], config) if result else ():
        if key.startswith(SCORING) or (key == "checkpoint.every" and config["checkpoint"]["average"] > 1):
            raise UserError(f"{workdir}: a finished run with another {key}; `fxf evaluate` scores it with other keys")
    return result


def source_digest(workdir: Path, path: str) -> dict[str, str]:
    """Returns the recorded digest of the source `start.path` of the run in `workdir`; {} if none has begun from it."""
    record = _read_record(workdir) if path and (workdir / CONFIG).exists() and has_begun(workdir) else None
    if record is None or record["config"].get("start", {}).get("path") != path:
        return {}
    return {name: value for name, value in record["digests"].items() if name in (SOURCE, ADAPTERS)}


def require_same_run(made: RunInputs) -> dict[str, Any] | None:
    """Returns config.json; None if there is none, or if it is of another run that has no record or checkpoint yet.

    Raises:
      UserError: `workdir` holds another run, or the same one with more steps, or can hold no checkpoints.
    """
    workdir, n = made.workdir, made.config["train"]["steps"]
    require_no_pattern(workdir)
    if not (workdir / CONFIG).exists():
        return None
    record = _read_record(workdir)
    if differing := differences(identity_of(record["config"], record["digests"]), made.identity):
        if not has_begun(workdir):
            return None  # such as a run whose own layer failed when it was first traced, and is mended now
        other = f"use another --workdir, with --from={workdir} to start from these weights"
        raise UserError(f"{workdir}: holds another run: {differing}; {other}; or that run's config, data and files")
    if n < _steps(record):
        what = f"train.steps: the run goes to step {_steps(record)}, which cannot become {n}"
        raise UserError(f"{workdir}: {what}; use another --workdir, or at least as many steps")
    return record


def has_begun(workdir: Path) -> bool:
    """Returns whether the run in `workdir` has a checkpoint or a record; otherwise another run may replace it."""
    return bool(steps_in(workdir / CHECKPOINTS) or lines(workdir / RECORDS))


def require_same_data(workdir: Path, digests: Mapping[str, str]) -> None:
    """Raises a UserError if the run in `workdir` was trained on other data than those with these digests."""
    record = _read_record(workdir)
    there, path = record["digests"], record["config"].get("data", {}).get("path")
    if differing := differences({name: there.get(name, "absent") for name in digests}, digests):
        where = f" at {path}" if path else ""
        raise UserError(f"{workdir}: was trained on other data: {differing}; put the data back{where}")


def read_config(workdir: Path) -> tuple[dict[str, Any], Identity, dict[str, Any]]:
    """Returns the resolved config of the run in `workdir`, its identity, and the record of what it names by path.

    A warning names code that differs from the run's.

    Raises:
      UserError: there is no run, or config.json or another file of the run is damaged or was changed.
    """
    record = _read_record(workdir)
    for name in record["files"]:
        if digest(read_file(workdir / name)) != record["digests"][name]:
            raise UserError(f"{workdir / name}: differs from the file that the run was made with; put that one back")
    if code := other_code(record):
        log.warning("warning: %s: was trained by other code: %s", workdir, differences(*code))
    return record["config"], identity_of(record["config"], record["digests"]), record.get(GUESTS, {})


def _read_record(workdir: Path) -> dict[str, Any]:
    """Returns config.json, after comparing it with the digest that it holds."""
    if not is_run(workdir):
        raise no_run(workdir)
    path = workdir / CONFIG
    mend = "with this file moved away, the training command writes it again and checks the checkpoints"
    try:
        record = read_json(path, "a run's config")
        changed = identity_digest(identity_of(record["config"], record["digests"])) != record["identity"]
        _ = _steps(record), record["code"], record["versions"], [record["digests"][name] for name in record["files"]]
    except UserError as error:
        raise UserError(f"{error}; {mend}") from None
    except (KeyError, TypeError, AttributeError):
        raise UserError(f"{path}: not a run's config: a part is missing or of another type; {mend}") from None
    if changed:
        raise UserError(f"{path}: was changed: its content does not match its identity; {mend}")
    return record


def _steps(record: Mapping[str, Any]) -> int:
    """Returns the number of steps of the run whose config.json this is."""
    return record["config"]["train"]["steps"]


def read_result(workdir: Path, identity: Identity | None = None) -> dict[str, Any] | None:
    """Returns the metrics of a finished run, or None. A damaged file counts as absent, with a warning.

    Args:
      identity: the identity of the run that they must belong to; any run if None.
    """
    path = workdir / RESULT
    try:
        result = read_json(path, "a run's result")
        if "identity" not in result or (identity is not None and result["identity"] != identity_digest(identity)):
            raise UserError(f"{path}: the result of another run")
    except FileNotFoundError:
        return None
    except UserError as error:
        log.warning("warning: %s; it counts as absent", error)
        return None
    return result


def write_result(workdir: Path, figures: dict[str, Any], identity: Identity) -> dict[str, Any]:
    """Writes the metrics of a run with its identity, and returns both."""
    result = {**figures, "identity": identity_digest(identity)}
    if processes.is_first():
        _write(workdir / RESULT, result)
    return result


def _write(path: Path, record: Mapping[str, Any]) -> None:
    write_atomically(path, to_json(record, indent=2) + "\n")


@contextmanager
def locked(workdir: Path) -> Iterator[None]:
    """Makes the folder, and keeps other processes from training in it until this one ends, however it ends.

    `flock` locks the file `lock`, which names the holder. On NFS, Linux makes it a lock on the server, which holds for
    all clients. If the file system has no locks, as in a bucket, a warning says so. Of several processes that train
    together the first one holds the lock.

    Raises:
      UserError: another process holds the lock, or the folder cannot be written; each process raises it.
    """
    with ExitStack() as held:
        why = _lock(workdir, held) if processes.is_first() else ""
        if processes.any_of(bool(why)):
            raise UserError(f"{workdir}: {why or 'the first process cannot train here'}")
        yield


def _lock(workdir: Path, held: ExitStack) -> str:
    """Locks the folder until `held` ends. Returns why that is not possible, or ""."""
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        file: Any = None if is_remote(workdir) else held.enter_context((workdir / LOCK).open("a+", encoding="utf-8"))
    except OSError as error:
        return f"cannot write the run folder: {error.strerror or error}"
    try:
        if file is None:
            raise OSError("a bucket has none")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.truncate(0)
        print(f"pid {os.getpid()} on {socket.gethostname()} since {time.strftime('%F %T')}", file=file, flush=True)
    except BlockingIOError:
        file.seek(0)
        return f"another process trains this run: {file.read(200).strip()}; wait for its end, or stop it"
    except OSError as error:
        log.warning("warning: %s: no lock here (%s); let only one process train this run", workdir, error)
    return ""
