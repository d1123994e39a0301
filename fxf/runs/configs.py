"""Finding and reading configs and their sweeps, and changing keys by KEY=VALUE. A mistake in a config is one line.

A config that comes with fxf has a name: `reversal`, or `reversal:example0` with an argument.
"""

import contextlib
import inspect
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from fxf.base.config import flatten
from fxf.base.errors import UserError, also_called, closest, did_you_mean, errors_of, nearest, shown
from fxf.runs.guests import load

ORIGIN, READ_FROM = "origin", "read_from"
# The keys of a section that the user names: of one layer, and of one source of a mixture.
IN_NAMED = re.compile(r"(model|data)\.(layers|sources)\.([^.]+)\.([^.]+)")
PACKAGE = Path(__file__).parent.parent
BOOLS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


def folder() -> Path:
    """Returns the folder of the configs: in the package that a wheel installs, beside the package in a checkout."""
    installed = PACKAGE / "configs"
    return installed if installed.is_dir() else PACKAGE.parent / "configs"


def names() -> list[str]:
    """Returns the names of the configs, such as `reversal` and `studies/positions`. Packages hold none."""
    place = folder()
    files = (path for path in place.rglob("*.py") if not path.with_name("__init__.py").exists())
    return sorted(path.relative_to(place).with_suffix("").as_posix() for path in files)


def located(config: str, flag: str = "config") -> tuple[str, list[str]]:
    """Returns the file of FILE[:ARGUMENT] or NAME[:ARGUMENT], and the argument if there is one.

    Raises:
      UserError: there is no such file or config.
    """
    name, *argument = config.split(":", 1)
    if Path(name).is_file():
        if Path(name).suffix in (".json", ".md", ".toml", ".tsv", ".txt", ".yaml", ".yml"):
            raise UserError(f"{flag}: {name}: expected Python with a function get_config, as in configs/reversal.py")
        return name, argument
    if name in names():
        return str(folder() / f"{name}.py"), argument
    path = Path(name)
    near = nearest(name, [*map(str, path.parent.glob("*.py")), *names()]) or nearest(path.stem, names())
    known = f" (fxf has {', '.join(each for each in names() if '/' not in each)}, ideas/…, objectives/…, studies/…)"
    what = f"no file {name}" if path.suffix else f"no file and no config of fxf is named '{name}'"
    raise UserError(f"{flag}: {what}{near or known}")


def read_config(config: str | os.PathLike[str], flag: str = "config") -> ConfigDict:
    """Returns the config of a config file, with every key of every section.

        config = fxf.read_config("reversal:example0")
        config.train.steps = 300

    Args:
      config: FILE[:ARGUMENT], or NAME[:ARGUMENT] of a config that comes with fxf. The file runs as code.
      flag: what an error calls it.

    Raises:
      UserError: there is no such file, or it returns no config.
    """
    if not isinstance(config, str | os.PathLike):
        raise UserError(f"{flag}: expected FILE[:ARGUMENT] or NAME[:ARGUMENT], got {config!r}")
    path, argument = located(os.fspath(config), flag)
    found = _call(path, "get_config", *argument)
    if not isinstance(found, ConfigDict):
        raise UserError(f"{flag}: {path}: get_config returned no ConfigDict, but {type(found).__name__}")
    object.__setattr__(found, ORIGIN, {READ_FROM: path})  # no key: module:name is looked for beside this file
    for section in found.lock().values():
        for by_name in section.values() if isinstance(section, ConfigDict) else ():
            if isinstance(by_name, ConfigDict):
                by_name.unlock()  # the user chooses its names, as in config.data.sources.wiki = {…}
    return found


def origin_of(config: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what config.json records of FILE[:ARGUMENT] or NAME[:ARGUMENT], with the keys that the user changed.

    It includes the metrics of the file's `EXPECTED` for this argument, such as `EXPECTED = {"": {"bleu": 39.7}}`.
    """
    path, argument = located(config)
    expected = getattr(load(path), "EXPECTED", {}).get("".join(argument))
    return {"config_file": config, "overrides": dict(overrides), **({"expected": expected} if expected else {})}


def load_file(origin: Mapping[str, Any]) -> None:
    """Executes the file of a config's origin, if there is one, so that module:name finds what is in its folder."""
    if file := origin.get("config_file") or origin.get(READ_FROM):
        load(located(file)[0])


def read_sweep(config: str) -> list[dict[str, Any]]:
    """Returns the changed keys of each point that a config file's `sweep(add)` or `sweep(add, argument)` adds.

    Raises:
      UserError: the file has no such function, or the function raises an exception.
    """
    path, argument = located(config)
    function, added = getattr(load(path), "sweep", None), list[dict[str, Any]]()

    def add(**changes: Any) -> None:
        added.append(changes)

    if not callable(function):
        raise UserError(f"config: {path}: no function sweep(add) beside get_config")
    takes_argument = len(inspect.signature(function).parameters) > 1
    _call(path, "sweep", add, *(argument if takes_argument else ()))
    return added


def _call(path: str, name: str, *arguments: Any) -> Any:
    """Calls a function of a config file. A mistake in it is one line, which names the line of the file."""
    function, absolute = getattr(load(path), name, None), Path(os.path.abspath(path))
    if not callable(function):
        raise UserError(f"{shown(absolute)}: no function {name}")
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        raise UserError(f"{shown(absolute)}: {name}: {error}; FILE:ARGUMENT or NAME:ARGUMENT gives one") from None
    with errors_of(absolute):
        return function(*arguments)


def with_changes(
    config: ConfigDict, changes: Iterable[tuple[str, str | None]], flag: str
) -> tuple[ConfigDict, dict[str, Any]]:
    """Returns a copy of the config with changed keys, and the new values by key.

    Args:
      changes: each key with the text of its value; None sets a bool to True. The last value of a key counts.
      flag: the flag that gave the changes, such as `--change=`, for an error.

    Raises:
      UserError: a key is unknown, or a value is not of its key's type.
    """
    config, values = config.copy_and_resolve_references(), dict[str, Any]()
    for key, text in changes:
        named = IN_NAMED.fullmatch(key)
        if named and named[2] in config.get(named[1], {}):
            values[key] = True if text is None else _typed(text)
            section, holder, owner, name = named.groups()
            with config.unlocked():
                sections = config[section][holder]
                sections[owner] = {**sections.get(owner, {}), name: values[key]}
            continue
        kind = _type_of(config, key, flag)
        try:
            if text is None and kind is not bool:
                raise ValueError
            given = "true" if text is None else text
            values[key] = _typed(given) if kind is type(None) else parsed(given, kind)
        except ValueError:
            got = "nothing" if text is None else repr(text)
            raise UserError(f"{flag}{key}: expected {kind.__name__}, got {got}") from None
        config.update_from_flattened_dict({key: values[key]})
    return config, values


def parsed(text: str, kind: type) -> Any:
    """Parses the text of a value of this type. Raises a ValueError if it is not one."""
    if kind is bool:
        if text.lower() not in BOOLS:
            raise ValueError(text)
        return BOOLS[text.lower()]
    return kind(text) if kind in (int, float) else text


def _typed(text: str) -> Any:
    """Returns a number or a bool if the text is one. The layer that reads the key checks its type."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return {"true": True, "false": False}.get(text.lower(), text)


def closest_key(typed: str, config: Mapping[str, Any], section: Iterable[str] = ()) -> str:
    """Returns the key that a wrong one may stand for, with the same or a near name in any section, or "".

    Args:
      section: the keys of the section that was typed, whose near names come first.
    """
    keys = [key for key, _ in flatten(config)]
    before, _, name = typed.rpartition(".")
    by_name = {key.rpartition(".")[2]: key for key in reversed(keys)}
    if name in by_name:
        return by_name[name]
    # It may be in another section, or in one that a config adds.
    if (meant := also_called().get(name, "")) in keys or meant.startswith("model.layers."):
        return meant
    elsewhere = [key for key in keys if key.rpartition(".")[0] != before]
    return closest(name, section) or by_name.get(closest(name, by_name), "") or closest(typed, elsewhere)


def _type_of(config: ConfigDict, key: str, flag: str) -> type:
    """Returns the type of a key. Raises a UserError if the config has no such key; it names the nearest one."""
    node, before = config, ""
    for name in key.split("."):
        if not isinstance(node, ConfigDict):
            raise UserError(f"{flag}{key}: '{before}' is a key, not a section; type {flag}{before}=VALUE")
        if name not in node:
            known = f" ({before or 'a config'} has: {', '.join(node) or 'NAME.KEY'})"
            if ":" in str(node.get("name", "")):
                known += "; default_config of a config file makes those of your own"
            meant = closest_key(key.partition(":")[0], config.to_dict(), node) if node else ""
            hint = also_called("hints").get(name) or did_you_mean(meant) or known
            raise UserError(f"{flag}{key}: unknown {'key' if before else 'section'}{hint}")
        node, before = node[name], f"{before}.{name}" if before else name
    if isinstance(node, ConfigDict):
        first = "name" if "name" in node else next(iter(node), "NAME.KEY")
        example = f"{flag}{before}.{first}=VALUE"
        raise UserError(f"{flag}{key}: is a section; set its keys, such as {example}")
    return type(node)
