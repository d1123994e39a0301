"""The two configs of a trial, its arms: the first one, and the other, which may be the first with changes."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from fxf.config import defaults, flatten
from fxf.errors import UserError
from fxf.models import MODELS
from fxf.runs import command_line
from fxf.runs.config_file import REGISTERED_BY, load
from fxf.training.optimizer import OPTIMIZERS

# The key that names an entry of a registry, by the registry's kind.
KEYS = {
    "activation": "model.activation",
    "attention": "model.attention",
    "block": "model.block",
    "feature map": "model.feature_map",
    "feed-forward layer": "model.feed_forward",
    "model": "model.name",
    "norm": "model.norm",
    "optimizer": "optimizer.name",
    "positions": "model.positions",
    "schedule": "optimizer.schedule",
}


class Arm(NamedTuple):
    """A config, nested with every key, and what config.json says of its origin."""

    config: dict[str, Any]
    origin: dict[str, Any]


def other_config(other: str, overrides: Mapping[str, Any]) -> Arm:
    """Returns the arm of FILE[:ARGUMENT] or NAME[:ARGUMENT], with the keys that the command line sets for both arms.

    Raises:
      UserError: there is no such config, or it lacks one of the keys.
    """
    changes = [f"{key}={value}" for key, value in overrides.items()]
    config, _ = command_line.with_changes(command_line.read_config(other), changes, f"--other={other}: ")
    return Arm(config.to_dict(), command_line.origin_of(other, overrides))


def with_changes(arm: Arm, changes: Sequence[str]) -> Arm:
    """Returns the arm with changes KEY=VALUE, of the flag --change.

    Raises:
      UserError: a change is not a valid KEY=VALUE, or changes the seed.
    """
    config, values = command_line.with_changes(ConfigDict(arm.config).lock(), changes, "--change=")
    if "seed" in values:
        raise UserError("--change=seed: the pairs of a trial set the seed; --null compares seeds alone")
    return Arm(config.to_dict(), _overridden(arm.origin, values))


def with_functions(arm: Arm, path: str, changes: Sequence[str] = ()) -> Arm:
    """Returns the arm with what a Python file registers, and with changes KEY=VALUE.

    Where the file registers one entry of a kind that a key names, such as an activation, the key takes its name unless
    a change sets it.

    Raises:
      UserError: the file cannot be executed, registers nothing, or nothing that the arm then names; the arm's own
        config file registers something too; or a change is not a valid KEY=VALUE.
    """
    file = load(path)
    if not file.registered:
        raise UserError(f"--functions: {path}: it registers nothing, as docs/extending.md shows it")
    if REGISTERED_BY in arm.origin:
        raise UserError(
            f"--functions: {path}: the config file {arm.origin['config_file']} registers something too; "
            "give --other a config file that imports both"
        )
    config, named = arm.config, [change.partition("=")[0] for change in changes]
    found = [kind for kind, _ in file.registered]
    chosen: dict[str, str] = {}
    for kind, name in sorted(file.registered):
        if kind in KEYS and found.count(kind) == 1 and KEYS[kind] not in named:
            config, chosen[KEYS[kind]] = _naming(config, KEYS[kind], name), name
    of_file = Arm(config, _overridden(arm.origin, chosen) | file.origin())
    changed = with_changes(of_file, changes)
    words = {word.strip() for _, value in flatten(changed.config) for word in str(value).split(",")}
    if not any(name in words for _, name in file.registered):
        entries = ", ".join(f"{kind} '{name}'" for kind, name in sorted(file.registered))
        raise UserError(f"--functions: {path}: no key names what it registers ({entries}); add --change=KEY=NAME")
    return changed


def _naming(config: dict[str, Any], key: str, name: str) -> dict[str, Any]:
    """Returns the config whose key names an entry; a section gets the keys of a model or optimizer of its own."""
    section, _, last = key.partition(".")
    values = config[section] | {last: name}
    if last == "name":
        registered: Any = {"model": MODELS, "optimizer": OPTIMIZERS}[section]
        values = {key: values.get(key, default) for key, default in defaults(registered[name].config).items()}
        values["name"] = name
    return config | {section: values}


def _overridden(origin: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    return {**origin, "overrides": {**origin.get("overrides", {}), **values}}
