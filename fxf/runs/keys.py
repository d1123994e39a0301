"""Config keys as a table: the default, the values and the meaning of each."""

import importlib
import re
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from fxf.base.config import LIMITS, defaults, fields_of
from fxf.models import MODELS
from fxf.runs.experiment import SECTIONS, classes_of
from fxf.tasks import TASKS
from fxf.training.optimizer import OPTIMIZERS, OptimizerConfig

# The defaults of the keys that name a class. The default model is the first that the task lists.
NAMES = {"task": "-", "model": "the task's", "optimizer": OptimizerConfig().name}


class Key(NamedTuple):
    """A config key.

    Attributes:
      values: the values that it may have, in words.
      of: the tasks, models or optimizers that have the key in this form; empty if all have it.
    """

    name: str
    default: str
    values: str
    meaning: str
    of: tuple[str, ...] = ()


# The one key outside the sections.
SEED = Key("seed", "0", "int from 0 to 2**32 - 1", "all randomness of a run derives from it")


def sections() -> dict[str, list[Key]]:
    """Returns the keys of all config sections, for all tasks, models and optimizers of fxf."""
    classes: dict[str, dict[str, type]] = {"task": {}, "data": {}}
    for name, task in TASKS.items():
        for path, cls in task.sections.items():
            classes.setdefault(path, {})[name] = cls
    classes["model"] = {name: model.config for name, model in MODELS.items()}
    classes |= {name: {"": cls} for name, cls in SECTIONS.items()}
    classes["optimizer"] = {name: optimizer.config for name, optimizer in OPTIMIZERS.items()}
    return {"seed": [SEED], **{path: _merged(path, of) for path, of in classes.items()}}


def of_config(config: Mapping[str, Any]) -> dict[str, list[Key]]:
    """Returns the keys that a config has, with its values in place of defaults."""
    classes = classes_of(*(config[path]["name"] for path in NAMES))
    seed = {"seed": [SEED._replace(default=str(config["seed"]))]}
    found = seed | {path: _keys_of(cls, config[path]) for path, cls in classes.items()}
    return {path: [key for key in keys if key.default != "{}"] for path, keys in found.items()}


def _merged(path: str, classes: Mapping[str, type]) -> list[Key]:
    """Returns the keys of a section's classes, each once: first those that all have, then the others."""
    having: dict[Key, list[str]] = {}
    for owner, cls in classes.items():
        for key in _keys_of(cls, {}):
            if key.name == "name" and path in NAMES:
                key = key._replace(default=NAMES[path], values=", ".join(classes))
            having.setdefault(key, []).append(owner)
    found = [key._replace(of=() if len(of) == len(classes) else tuple(of)) for key, of in having.items()]
    return sorted(found, key=lambda key: (bool(key.of), [list(classes).index(name) for name in key.of]))


def _keys_of(cls: type, given: Mapping[str, Any]) -> list[Key]:
    """Returns the keys of a section class, with the values given in place of defaults."""
    values, fields, found = {**defaults(cls), **given}, fields_of(cls), list[Key]()
    for name, field in fields.items():
        conditions = [each for each in field.limits.get("when", "").split(", ") if each.partition("=")[0] in fields]
        meaning = "; only with ".join(filter(None, [field.limits.get("doc", ""), " and ".join(conditions)]))
        found.append(Key(name, _text(values[name]), _values(field.kind, field.limits), meaning))
    return found


def _text(value: Any) -> str:
    return repr(value) if isinstance(value, str) and (not value or value != value.strip()) else str(value)


def _values(kind: Any, metadata: Mapping[str, Any]) -> str:
    """Returns the values of a key in words: names, or the type with its range."""
    registry = re.search(r"(fxf\.[a-z_.]+)\.([A-Z_]+)", metadata.get("doc", ""))
    if registry:
        return ", ".join(getattr(importlib.import_module(registry[1]), registry[2]))
    if typing.get_origin(kind) is Literal:
        return ", ".join(typing.get_args(kind))
    if kind is bool:
        return "True, False"
    found = [f"{words} {metadata[name]}" for name, (_, words) in LIMITS.items() if metadata.get(name) is not None]
    return " ".join([kind.__name__, ", ".join(found)]).strip()


def as_markdown(tables: Mapping[str, Sequence[Key]]) -> str:
    """Returns a Markdown table for each section."""
    lines = []
    for path, keys in tables.items():
        lines += [f"## {path}", "", "| key | default | values | meaning |", "|---|---|---|---|"]
        for key in keys:
            only = f"; only of {', '.join(key.of)}" if key.of else ""
            cells = (f"`{key.name}`", f"`{key.default}`", key.values, key.meaning + only)
            lines.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines)
