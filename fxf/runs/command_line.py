"""The command line: flags, overrides and the config file. A mistake there ends in one line."""

import inspect
import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import ConfigDict, FrozenConfigDict
from ml_collections.config_flags import config_flags

from fxf.config import flatten
from fxf.errors import UserError, errors_of, nearest, shown, text_of
from fxf.machine.devices import start_jax
from fxf.runs.guests import load
from fxf.runs.shipped import located, names

MISSING = "--config: missing; for example --config=reversal"
OF_ABSL = ("flagfile", "undefok")  # flags that absl reads before all others, and that are not among them
MOST_POINTS = 10_000  # of a sweep, each of which is a run
# The parser of an override's value, by type. ml_collections parses the flags with the same ones.
PARSERS: dict[type, Any] = {int: flags.IntegerParser(), float: flags.FloatParser(), bool: flags.BooleanParser()}


class CheckedConfigParser(config_flags.ConfigFileFlagParser):
    """A parser that executes a config file and checks the overrides on the command line against its config."""

    def __init__(self, name: str, arguments: Sequence[str]) -> None:
        super().__init__(name)
        self._arguments = arguments

    def parse(self, path: str) -> Any:
        if not path:
            raise UserError(MISSING)
        config = read_config(path)
        for key, value in given(self._arguments):
            check(config, key, value)
        return config


def given(arguments: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Yields the key of each override, and the text of its value, or None if it has none, like a switch."""
    for i, argument in enumerate(arguments):
        if argument == "--":
            return
        found = re.fullmatch(r"--?(no)?config\.([^=]*)(=.*)?", argument, re.DOTALL)
        if found:
            switched, key, value = found.groups()
            following = arguments[i + 1] if i + 1 < len(arguments) and not switched else None
            yield key, value[1:] if value else following


def check(config: ConfigDict, key: str, value: str | None, flag: str = "--config.") -> None:
    """Raises a UserError if `config` has no such key, or if the value is not of the key's type."""
    where, found, before = f"{flag}{key}", config, ""
    for name in key.split("."):
        if not isinstance(found, ConfigDict):
            raise UserError(f"{where}: '{before}' is a key, not a section; type {flag}{before}=VALUE")
        if name not in found:
            raise UserError(f"{where}: unknown {'key' if before else 'section'}{_nearest(config, found, name, before)}")
        found, before = found[name], f"{before}.{name}" if before else name
    if isinstance(found, ConfigDict):
        raise UserError(f"{where}: is a section; set its keys, such as {flag}{before}.{next(iter(found))}=VALUE")
    kind = type(found)
    if kind not in PARSERS or (kind is bool and value is None):
        return
    try:
        PARSERS[kind].parse(value)
    except (ValueError, TypeError):
        raise UserError(
            f"{where}: expected {kind.__name__}, got {'nothing' if value is None else repr(value)}"
        ) from None


def with_changes(config: ConfigDict, changes: Sequence[str], flag: str) -> tuple[ConfigDict, dict[str, Any]]:
    """Returns a copy of the config with changes KEY=VALUE, and the new values by key.

    Args:
      flag: the flag that gave the changes, such as `--change=`.

    Raises:
      UserError: a change has no value, a key is unknown or given twice, or a value is not of its key's type.
    """
    config, values = config.copy_and_resolve_references(), dict[str, Any]()
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals:
            raise UserError(f"{flag}{change}: expected KEY=VALUE, such as model.n_layers=4")
        if key in values:
            raise UserError(f"{flag}{key}: given twice")
        check(config, key, value, flag)
        kind = type(dict(flatten(config.to_dict()))[key])
        values[key] = PARSERS[kind].parse(value) if kind in PARSERS else value
        config.update_from_flattened_dict({key: values[key]})
    return config, values


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


def parse(argv: list[str], modules: Sequence[str]) -> list[str]:
    """Parses the flags with absl and ml_collections. Every exception becomes a UserError.

    Args:
      modules: the modules that define the script's flags.

    Returns:
      The script's name and the arguments besides flags.
    """
    known = [flag.name for module in modules for flag in flags.FLAGS.flags_by_module_dict().get(module, [])]
    _require_known(argv, known)
    _require_each_once(argv)
    if config_file := located(_config_named(argv)).split(":")[0]:
        require_config_file(config_file)
        start_jax()  # before the file imports JAX
    try:
        arguments = flags.FLAGS(argv)
        _require_values(argv)
        return arguments
    except UserError:
        raise
    except flags.UnrecognizedFlagError as error:
        raise UserError(_unknown_flag(error.flagname, known)) from None
    except flags.IllegalFlagValueError as error:
        raise UserError(_wrong_value(text_of(error))) from None
    except Exception as error:
        raise UserError(text_of(error)) from None


def _config_named(argv: Sequence[str]) -> str:
    """Returns the value of --config, or nothing."""
    for argument, following in itertools.pairwise([*argv[1:], ""]):
        found = re.fullmatch(r"--?config(=.*)?", argument, re.DOTALL)
        if found:
            return found[1][1:] if found[1] else following
        if argument == "--":
            break
    return ""


def require_config_file(config_file: str) -> None:
    """Raises a UserError if there is no such file or config."""
    path = Path(config_file)
    if not path.is_file():
        near = nearest(config_file, map(str, path.parent.glob("*.py"))) or nearest(path.stem, names())
        what = f"no file {config_file}" if path.suffix else f"no file and no config of fxf is named '{config_file}'"
        raise UserError(f"--config: {what}{near}")


def _require_known(argv: Sequence[str], known: Sequence[str]) -> None:
    """Raises a UserError for a flag of absl, which nothing here reads, or for a flag in the place of a value."""
    for argument, following in itertools.pairwise([*argv[1:], ""]):
        if argument == "--":
            return
        if not (found := re.match(r"--?(no)?([a-zA-Z_]\w*)(=|$)", argument)):
            continue
        names = f"{found[1] or ''}{found[2]}", found[2]
        name = next((name for name in names if name in flags.FLAGS or name in OF_ABSL), "")
        if name and name not in known:
            raise UserError(_unknown_flag(name, known))
        if name and not found[3] and not flags.FLAGS[name].boolean and re.match(r"--[a-zA-Z_]", following):
            raise UserError(f"--{name}: expected a value, got the flag '{following}'")


def _require_each_once(argv: list[str]) -> None:
    """Raises a UserError if a flag that takes one value is given twice; one of the two would be ignored."""
    seen: dict[str, str] = {}
    for argument in argv[1:]:
        if argument == "--":
            return
        if found := re.match(r"--?([a-zA-Z_][\w.]*)", argument):
            several = found[1] in flags.FLAGS and isinstance(flags.FLAGS[found[1]], flags.MultiFlag)
            if found[1] in seen and not several:
                raise UserError(f"--{found[1]}: given twice, as '{seen[found[1]]}' and '{argument}'")
            seen[found[1]] = argument


def _require_values(argv: list[str]) -> None:
    """Raises a UserError if a flag is given an empty text, which would count as absent."""
    for argument in argv[1:]:
        if argument == "--":
            return
        found = re.match(r"--?([a-zA-Z_]\w*)(=|$)", argument)
        if found and found[1] in flags.FLAGS and flags.FLAGS[found[1]].value in ("", []):
            raise UserError(f"--{found[1]}: expected a value, got ''")


def _unknown_flag(name: str, known: Sequence[str]) -> str:
    """Returns the error line for a flag that is not among the script's, which are `known`."""
    if not re.fullmatch(r"[a-zA-Z_][\w.]*", name):
        return f"-{name}: unknown flag; put -- in front of an argument that begins with -"
    section, *rest = name.split(".")
    with_keys = [flag for flag in known if config_flags.is_config_flag(flags.FLAGS[flag])]
    if rest and section in with_keys:
        return MISSING
    near = nearest(section, with_keys) if rest else nearest(name, known)
    if rest and near:
        near = f"; did you mean '--{'.'.join(['config', *rest])}'?"
    if rest and not near:
        near = nearest(rest[-1], known)
    return f"--{name}: unknown flag{near} (here are --{', --'.join(known)})"


def _wrong_value(message: str) -> str:
    """Returns absl's message about a flag's value, in the words of the message about a config key."""
    kinds = {"invalid literal for int": "int", "could not convert string to float": "float", "Non-boolean": "bool"}
    bounds = {"a positive": "1", "a non-negative": "0"}
    found = re.match(rf"flag (--\S+?)=(.*?): \W*({'|'.join(kinds)})", message)
    if found:
        return f"{found[1]}: expected {kinds[found[3]]}, got {found[2]!r}"
    found = re.match(rf"flag (--\S+?)=.*?: (.*) is not ({'|'.join(bounds)}|(?:an? )?\w+ >=) ?(\S+)$", message)
    return f"{found[1]}: expected at least {bounds.get(found[3], found[4])}, got {found[2]}" if found else message


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
