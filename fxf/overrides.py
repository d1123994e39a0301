"""The keys of a config that a command line changes, `--config.SECTION.KEY=VALUE`, checked before they are set."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from absl import flags
from ml_collections import ConfigDict
from ml_collections.config_flags import config_flags

from fxf.config import flatten
from fxf.errors import UserError, nearest

# What a value of a type is written as; the flag itself is parsed by the same parsers.
PARSERS: dict[type, Any] = {int: flags.IntegerParser(), float: flags.FloatParser(), bool: flags.BooleanParser()}


class CheckedConfigParser(config_flags.ConfigFileFlagParser):
    """Loads a config file, and compares the overrides on the command line with what it holds."""

    def __init__(self, name: str, arguments: Sequence[str]) -> None:
        super().__init__(name)
        self._arguments = arguments

    def parse(self, path: str) -> Any:
        config = super().parse(path)
        if isinstance(config, ConfigDict):
            for key, value in given(self._arguments):
                check(config, key, value)
        return config


def given(arguments: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Yields the key of each override, and the text of its value or None where it has none, as a switch."""
    for i, argument in enumerate(arguments):
        if argument == "--":
            return
        found = re.fullmatch(r"--?(no)?config\.([^=]*)(=.*)?", argument, re.DOTALL)
        if found:
            switched, key, value = found.groups()
            following = arguments[i + 1] if i + 1 < len(arguments) and not switched else None
            yield key, value[1:] if value else following


def check(config: ConfigDict, key: str, value: str | None) -> None:
    """Raises a UserError if `config` has no such key, or if the value is not of the key's type."""
    where, found, before = f"--config.{key}", config, ""
    for name in key.split("."):
        if not isinstance(found, ConfigDict):
            raise UserError(f"{where}: '{before}' is a key, no section; type --config.{before}=VALUE")
        if name not in found:
            raise UserError(f"{where}: unknown {'key' if before else 'section'}{_nearest(config, found, name, before)}")
        found, before = found[name], f"{before}.{name}" if before else name
    if isinstance(found, ConfigDict):
        raise UserError(f"{where}: is a section; set its keys, such as --config.{before}.{next(iter(found))}=VALUE")
    kind = type(found)
    if kind not in PARSERS or (kind is bool and value is None):
        return
    try:
        PARSERS[kind].parse(value)
    except (ValueError, TypeError):
        raise UserError(
            f"{where}: expected {kind.__name__}, got {'nothing' if value is None else repr(value)}"
        ) from None


def _nearest(config: ConfigDict, section: ConfigDict, name: str, path: str) -> str:
    """Returns the key that may have been meant, here or in another section, and all keys of the section."""
    all_keys = [key for key, _ in flatten(config.to_dict())]
    near = nearest(name, section)
    if not near:
        elsewhere = [key for key in all_keys if key.split(".")[-1] == name]
        near = "".join(f"; did you mean '{key}'?" for key in elsewhere[:1]) or nearest(f"{path}.{name}", all_keys)
    return f"{near} ({path or 'a config'} has: {', '.join(section)})"
