"""The two configs of a trial, its arms: the first one, and the other, which may be the first with changes."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from fxf.errors import UserError
from fxf.runs import configs


class Arm(NamedTuple):
    """A config, nested with every key, and what config.json says of its origin."""

    config: dict[str, Any]
    origin: dict[str, Any]


def other_config(other: str, overrides: Mapping[str, Any]) -> Arm:
    """Returns the arm of FILE[:ARGUMENT] or NAME[:ARGUMENT], with the keys that the command line sets for both arms.

    Raises:
      UserError: there is no such config, or it lacks one of the keys.
    """
    changes = [(key, str(value)) for key, value in overrides.items()]
    config, _ = configs.with_changes(configs.read_config(other), changes, f"--other={other}: ")
    return Arm(config.to_dict(), configs.origin_of(other, overrides))


def with_changes(arm: Arm, changes: Sequence[str]) -> Arm:
    """Returns the arm with changes KEY=VALUE, of the flag --change.

    Raises:
      UserError: a change is not a valid KEY=VALUE, or changes the seed.
    """
    typed = []
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals:
            raise UserError(f"--change={change}: expected KEY=VALUE, such as model.n_layers=4")
        typed.append((key, value))
    config, values = configs.with_changes(ConfigDict(arm.config).lock(), typed, "--change=")
    if "seed" in values:
        raise UserError("--change=seed: the pairs of a trial set the seed; --null compares seeds alone")
    overrides = {**arm.origin.get("overrides", {}), **values}
    return Arm(config.to_dict(), {**arm.origin, "overrides": overrides})
