"""The run folder: config.json, metrics.jsonl, checkpoints/, result.json and others, and the task's own files.

config.json records what the run is made from: its config, the digests of its data and of the task's files, and its
code. The run's identity is the part of this record that can change the training. Checkpoints and result carry it.
"""

import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fxf.config import differences, differing_keys, flatten
from fxf.errors import UserError
from fxf.files import digest, read_file, read_json, to_json, write_atomically
from fxf.reports.run_files import CONFIG, OBJECTS, RESULT, no_run
from fxf.runs.code_version import made_by, other_code, written_by
from fxf.runs.guests import GUESTS
from fxf.training import processes
from fxf.training.checkpoint_files import require_no_pattern
from fxf.training.optimizer import make_schedule, optimizer_section

log = logging.getLogger(__name__)

SOURCE = "start.path"  # its name among the digests
RATES = 50  # steps whose learning rates are compared

# Keys and sections that change neither weights nor data. A path only says where data are; their digest counts.
# A run may go on to more steps.
NOT_TRAINING = (
    *("parallel.", "log.", "checkpoint.every", "checkpoint.minutes", "checkpoint.keep"),
    *("data.path", "data.prepared", "start.path", "train.steps"),
)
# Keys that choose what is scored. With train.patience they also decide when training ends.
SCORING = ("task.metrics", "decode.", "checkpoint.best", "checkpoint.average")

Identity = dict[str, Any]


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


def open_for_training(
    workdir: Path,
    config: dict[str, Any],
    data: Mapping[str, str],
    files: Mapping[str, str],
    origin: dict[str, Any],
) -> Identity:
    """Writes what the run is made from, or checks that the run in the folder has the same identity.

    It records other differences, which cannot change the training, and logs them in a line. If there are several
    processes, the first one writes.

    Args:
      config: the resolved config.
      data: digests of the data, by name.
      files: texts that the run keeps in its folder, by file name.
      origin: the origin of the config: file and overrides.

    Returns:
      The run's identity.

    Raises:
      UserError: the folder cannot be written, or holds another run.
    """
    digests = _digests(data, files)
    identity, there = identity_of(config, digests), _require_same_run(workdir, config, digests)
    if not processes.is_first():
        return identity
    made_from = {"identity": identity_digest(identity), "digests": digests, "files": list(files)}
    try:
        for name, text in files.items():
            if not (workdir / name).exists():
                write_atomically(workdir / name, text)
        if there is None:
            write_atomically(workdir / CONFIG, _as_text({"config": config, **origin, **made_from, **made_by()}))
        elif changes := _changes(workdir, there, config, origin):
            if _steps(there) < config["train"]["steps"]:
                (workdir / RESULT).unlink(missing_ok=True)  # of fewer steps
            changes = {"time": time.strftime("%F %T"), **changes}
            record = {
                **there,
                GUESTS: origin.get(GUESTS, {}),
                "config": config,
                "changes": [*there.get("changes", []), changes],
            }
            write_atomically(workdir / CONFIG, _as_text(record))
    except OSError as error:
        raise UserError(f"{workdir}: cannot write the run folder: {error.strerror or error}") from error
    return identity


def finished(
    workdir: Path, config: Mapping[str, Any], data: Mapping[str, str], files: Mapping[str, str]
) -> dict[str, Any] | None:
    """Returns the figures of the run in the folder, or None if it has not finished.

    Raises:
      UserError: the folder holds another run, or a finished one with other keys of scoring.
    """
    digests = _digests(data, files)
    there = _require_same_run(workdir, config, digests)
    if there is None or _steps(there) < config["train"]["steps"]:
        return None
    result = read_result(workdir, identity_of(config, digests))
    for key in differing_keys(there["config"], config) if result else ():
        if key.startswith(SCORING) or (key == "checkpoint.every" and config["checkpoint"]["average"] > 1):
            raise UserError(f"{workdir}: a finished run with another {key}; `fxf evaluate` scores it with other keys")
    return result


def source_digest(workdir: Path, path: str) -> dict[str, str]:
    """Returns the recorded digest of the source `start.path` of the run in `workdir`; {} if there is none."""
    record = _read_record(workdir) if path and (workdir / CONFIG).exists() else None
    found = {} if record is None or record["config"].get("start", {}).get("path") != path else record["digests"]
    return {name: value for name, value in found.items() if name == SOURCE}


def require_same_run(
    workdir: Path, config: Mapping[str, Any], data: Mapping[str, str], files: Mapping[str, str]
) -> None:
    """Raises a UserError if `workdir` holds another run than the one made from these, or can hold no checkpoints."""
    _require_same_run(workdir, config, _digests(data, files))


def _require_same_run(workdir: Path, config: Mapping[str, Any], digests: Mapping[str, str]) -> dict[str, Any] | None:
    """Returns config.json, or None if there is none. Raises what `require_same_run` does."""
    require_no_pattern(workdir)
    if not (workdir / CONFIG).exists():
        return None
    there = _read_record(workdir)
    if differing := differences(_identity_in(there), identity_of(config, digests)):
        what = f"{workdir}: holds another run: {differing}"
        other = f"use another --workdir, with --from={workdir} to start from these weights"
        raise UserError(f"{what}; {other}; or the config, data and files of that run")
    if config["train"]["steps"] < _steps(there):
        what = f"train.steps: the run goes to step {_steps(there)}, which cannot become {config['train']['steps']}"
        raise UserError(f"{workdir}: {what}; use another --workdir, or at least as many steps")
    return there


def _steps(record: Mapping[str, Any]) -> int:
    """Returns the number of steps of the run whose config.json this is."""
    return record["config"]["train"]["steps"]


def _digests(data: Mapping[str, str], files: Mapping[str, str]) -> dict[str, str]:
    return {**data, **{name: digest(text.encode()) for name, text in files.items()}}


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
        path = workdir / name
        if not path.exists():
            raise UserError(f"{path}: is missing; put back the file that the run was made with")
        if digest(read_file(path)) != record["digests"][name]:
            raise UserError(f"{path}: differs from the file that the run was made with; put that one back")
    if code := other_code([record, *record.get("changes", [])]):
        log.warning("warning: %s: was trained by other code: %s", workdir, differences(*code))
    return record["config"], _identity_in(record), record.get(GUESTS, {})


def _read_record(workdir: Path) -> dict[str, Any]:
    """Returns config.json, after comparing it with the digest that it holds."""
    path = workdir / CONFIG
    mend = "; with this file moved away, the training command writes it again and checks the checkpoints"
    try:
        record = read_json(path, "a run's config")
    except FileNotFoundError:
        raise no_run(workdir) from None
    except UserError as error:
        raise UserError(f"{error}{mend}") from None
    try:
        if identity_digest(_identity_in(record)) != record["identity"]:
            raise UserError(f"{path}: was changed: its content does not match its identity{mend}")
        _ = _steps(record) + 0, record["config"].get("start", {}).get("path")
        for name in record["files"]:
            record["digests"][name]
        other_code([record, *record.get("changes", [])])
        _ = [record.get(name, {}).items() for name in OBJECTS]
        _ = [(Path(guest["path"]), guest["sha256"].items()) for guest in record.get(GUESTS, {}).values()]
    except (KeyError, TypeError, AttributeError, StopIteration):
        what = f"a part is missing or of another type{written_by(record)}"
        raise UserError(f"{path}: not a run's config: {what}{mend}") from None
    return record


def _identity_in(record: Mapping[str, Any]) -> Identity:
    return identity_of(record["config"], record["digests"])


def read_result(workdir: Path, identity: Identity | None = None) -> dict[str, Any] | None:
    """Returns the figures of a finished run, or None. A damaged file counts as absent, with a warning.

    Args:
      identity: the identity of the run that they must belong to; any run if None.

    Raises:
      UserError: a folder stands in the file's place.
    """
    path = workdir / RESULT
    try:
        result = read_json(path, "a run's result")
    except FileNotFoundError:
        return None
    except UserError as error:
        if path.is_dir():  # no result could be written in its place
            raise
        log.warning("warning: %s; it counts as absent", error)
        return None
    there = result.get("identity")
    if not isinstance(there, str) or (identity is not None and there != identity_digest(identity)):
        log.warning("warning: %s: the result of another run; it counts as absent", path)
        return None
    return result


def write_result(workdir: Path, figures: dict[str, Any], identity: Identity) -> dict[str, Any]:
    """Writes the figures of a run with its identity, and returns both."""
    result = {**figures, "identity": identity_digest(identity)}
    if processes.is_first():
        write_atomically(workdir / RESULT, _as_text(result))
    return result


def require_there(workdir: Path) -> None:
    """Raises a UserError if the run's folder was removed or moved while it trained."""
    if not (workdir / CONFIG).exists():
        raise UserError(f"{workdir}: {CONFIG} is gone: the run folder was removed or moved while the run trained")


def _as_text(record: Mapping[str, Any]) -> str:
    return to_json(record, indent=2) + "\n"


def _other_rates(there: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Returns a text that names the schedule if another number of steps changes the rates of the steps so far."""
    sections = [(optimizer_section(each["optimizer"]), each["train"]["steps"]) for each in (there, config)]
    if sections[0][1] == sections[1][1]:
        return ""
    (old, new), n = [make_schedule(*section) for section in sections], sections[0][1]
    steps = {*range(0, n, -(-n // RATES)), n - 1}
    if all(float(old(step)) == float(new(step)) for step in sorted(steps)):
        return ""
    name, n_new = config["optimizer"]["schedule"], config["train"]["steps"]
    return (
        f"; optimizer.schedule '{name}' depends on train.steps, so this is not the run of {n_new} steps from the start"
    )


def _changes(
    workdir: Path, there: Mapping[str, Any], config: Mapping[str, Any], origin: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the changes since the run began or last went on, and logs a warning of them."""
    before = [there, *there.get("changes", [])]
    keys, code = differences(there["config"], config), other_code(before)
    if keys:
        log.warning("warning: %s: goes on with other keys: %s%s", workdir, keys, _other_rates(there["config"], config))
    if code:
        log.warning("warning: %s: goes on with other code: %s", workdir, differences(*code))
    guests = origin.get(GUESTS, {})
    moved = {GUESTS: guests} if guests != there.get(GUESTS, {}) else {}
    return {**({"keys": keys} if keys else {}), **(code[1] if code else {}), **moved}
