"""Configs by name or file: found, read, changed by KEY=VALUE, with their sweeps. A mistake in one is one line."""

import inspect
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict, FrozenConfigDict

from fxf.config import flatten
from fxf.errors import UserError, errors_of, nearest, shown
from fxf.runs.guests import load
from fxf.runs.shipped import located, names

MISSING = "--config: missing; for example --config=reversal"
MOST_POINTS = 10_000  # of a sweep, each of which is a run
BOOLS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


def parsed(text: str, kind: type) -> Any:
    """Returns the value of a key of this type that is typed as text. Raises a ValueError if it is none."""
    if kind is bool:
        if text.lower() not in BOOLS:
            raise ValueError(text)
        return BOOLS[text.lower()]
    return kind(text) if kind in (int, float) else text


def with_changes(
    config: ConfigDict, changes: Iterable[tuple[str, str | None]], flag: str
) -> tuple[ConfigDict, dict[str, Any]]:
    """Returns a copy of the config with changed keys, and the new values by key.

    Args:
      changes: each key with the text of its value; None is True for a switch.
      flag: the flag that gave the changes, such as `--change=`, for an error.

    Raises:
      UserError: a key is unknown or given twice, or a value is not of its key's type.
    """
    config, values = config.copy_and_resolve_references(), dict[str, Any]()
    for key, text in changes:
        kind = _type_of(config, key, flag)
        if key in values:
            raise UserError(f"{flag}{key}: given twice")
        try:
            if text is None and kind is not bool:
                raise ValueError
            values[key] = True if text is None else parsed(text, kind)
        except ValueError:
            got = "nothing" if text is None else repr(text)
            raise UserError(f"{flag}{key}: expected {kind.__name__}, got {got}") from None
        config.update_from_flattened_dict({key: values[key]})
    return config, values


def _type_of(config: ConfigDict, key: str, flag: str) -> type:
    """Returns the type of a key. Raises a UserError if the config has no such key."""
    where, found, before = f"{flag}{key}", config, ""
    for name in key.split("."):
        if not isinstance(found, ConfigDict):
            raise UserError(f"{where}: '{before}' is a key, not a section; type {flag}{before}=VALUE")
        if name not in found:
            raise UserError(f"{where}: unknown {'key' if before else 'section'}{_nearest(config, found, name, before)}")
        found, before = found[name], f"{before}.{name}" if before else name
    if isinstance(found, ConfigDict):
        raise UserError(f"{where}: is a section; set its keys, such as {flag}{before}.{next(iter(found))}=VALUE")
    return type(found)


def _nearest(config: ConfigDict, section: ConfigDict, name: str, path: str) -> str:
    """Returns a hint: the nearest key, in this section or in another one, and all keys of the section."""
    all_keys = [key for key, _ in flatten(config.to_dict())]
    near = nearest(name, section)
    if not near:
        short = [key for key in section if name == "".join(word[0] for word in key.split("_"))]  # lr: learning_rate
        elsewhere = [key for key in all_keys if key.split(".")[-1] == name]
        near = "".join(f"; did you mean '{key}'?" for key in [*short, *elsewhere][:1])
    if not near:
        near = nearest(f"{path}.{name}", [key for key in all_keys if not key.startswith(f"{path}.")])
    return f"{near} ({path or 'a config'} has: {', '.join(section)})"


def require_config_file(config_file: str) -> None:
    """Raises a UserError if there is no such file or config."""
    path = Path(config_file)
    if not path.is_file():
        near = nearest(config_file, map(str, path.parent.glob("*.py"))) or nearest(path.stem, names())
        what = f"no file {config_file}" if path.suffix else f"no file and no config of fxf is named '{config_file}'"
        raise UserError(f"--config: {what}{near}")


def read_config(config: str) -> ConfigDict:
    """Returns the config that a config file's `get_config` makes.

    Args:
      config: FILE[:ARGUMENT], or NAME[:ARGUMENT] of a config that comes with fxf.

    Raises:
      UserError: there is no such file, or it makes no config.
    """
    if not isinstance(config, str):
        raise UserError(f"config: expected FILE[:ARGUMENT] or NAME[:ARGUMENT], got {config!r}")
    path, *argument = located(config).split(":", 1)
    require_config_file(path)
    found = _call(path, "get_config", *argument)
    if not isinstance(found, ConfigDict) or isinstance(found, FrozenConfigDict):
        raise UserError(f"--config: {path}: get_config returned no ConfigDict, but {type(found).__name__}")
    return found.lock()


def origin_of(config: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what config.json says of FILE[:ARGUMENT] or NAME[:ARGUMENT], with the keys that the user changed.

    It has the figures that the file expects of this argument, if it says any.
    """
    path, *argument = located(config).split(":", 1)
    of_arguments = getattr(load(path), "EXPECTED", {})
    expected = of_arguments.get("".join(argument), {}) if isinstance(of_arguments, dict) else None
    if not isinstance(expected, dict) or not all(type(value) in (int, float) for value in expected.values()):
        raise UserError(f"{path}: EXPECTED: expected figures by argument, as {{'': {{'bleu': 39.7}}}}")
    return {"config_file": config, "overrides": dict(overrides), **({"expected": expected} if expected else {})}


def read_sweep(config: str) -> list[dict[str, Any]]:
    """Returns the changed keys of each point that a config file's `sweep(add)` or `sweep(add, argument)` adds.

    Args:
      config: FILE[:ARGUMENT], or NAME[:ARGUMENT] of a config that comes with fxf.

    Raises:
      UserError: the file has no such function, or the function raises an exception.
    """
    path, *argument = located(config).split(":", 1)
    function, added = getattr(load(path), "sweep", None), list[dict[str, Any]]()
    if not callable(function):
        raise UserError(f"--config: {path}: no function sweep(add) beside get_config")
    takes_argument = len(inspect.signature(function).parameters) > 1

    def add(**changes: Any) -> None:
        if len(added) == MOST_POINTS:
            raise UserError(f"sweep: expected at most {MOST_POINTS} points")
        added.append(changes)

    _call(path, "sweep", add, *(argument if takes_argument else ()))
    return added


def _call(path: str, name: str, *arguments: Any) -> Any:
    """Calls a function of a config file. A mistake in it is one line, which names the line of the file."""
    function, absolute = getattr(load(path), name, None), Path(os.path.abspath(path))
    if not callable(function):
        raise UserError(f"{shown(absolute)}: no function {name}")
    with errors_of(absolute):
        return function(*arguments)
