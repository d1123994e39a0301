"""Config keys as a table: the default, the values and the meaning of each."""

import importlib
import itertools
import re
import textwrap
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from fxf.base.config import LIMITS, defaults, fields_of
from fxf.models import MODELS
from fxf.runs.experiment import SECTIONS, classes_of
from fxf.tasks import TASKS
from fxf.training.optimizer import OPTIMIZERS, OptimizerConfig

WIDTH = 120


class Key(NamedTuple):
    """A config key.

    Attributes:
      values: the values that it may have, in words.
      of: the tasks, models or optimizers that have the key in this form; empty if all have it.
    """

    path: str
    default: str
    values: str
    meaning: str
    of: tuple[str, ...] = ()


def sections() -> dict[str, list[Key]]:
    """Returns the keys of all config sections, for all tasks, models and optimizers of fxf."""
    classes: dict[str, dict[str, type]] = {"task": {}, "data": {}}
    for name, task in TASKS.items():
        for path, cls in task.sections.items():
            classes.setdefault(path, {})[name] = cls
    classes["model"] = {name: model.config for name, model in MODELS.items()}
    classes |= {name: {"": cls} for name, cls in SECTIONS.items()}
    classes["optimizer"] = {name: optimizer.config for name, optimizer in OPTIMIZERS.items()}
    return {path: _merged(path, of) for path, of in classes.items()}


def of_config(config: Mapping[str, Any]) -> dict[str, list[Key]]:
    """Returns the keys that a config has, with its values in place of defaults."""
    classes = classes_of(*(config[path]["name"] for path in ("task", "model", "optimizer")))
    found = {path: keys_of(cls, path, config[path]) for path, cls in classes.items()}
    return {path: [key for key in keys if key.default != "{}"] for path, keys in found.items()}


def _merged(path: str, classes: Mapping[str, type]) -> list[Key]:
    """Returns the keys of a section's classes, each once: first those of all, then those of some.

    The key `name` of a task, a model or an optimizer chooses the class. Its values are the names of all classes. A
    config file names the task, whose first model is the default.
    """
    having: dict[Key, list[str]] = {}
    for name, cls in classes.items():
        for key in keys_of(cls, path):
            if key.path in ("task.name", "model.name", "optimizer.name"):
                default = {"task.name": "-", "model.name": "the task's"}.get(key.path, OptimizerConfig().name)
                key = key._replace(default=default, values=", ".join(classes))
            having.setdefault(key, []).append(name)
    found = [key._replace(of=() if len(of) == len(classes) else tuple(of)) for key, of in having.items()]
    return sorted(found, key=lambda key: (bool(key.of), [list(classes).index(name) for name in key.of]))


def keys_of(cls: type, path: str, given: Mapping[str, Any] | None = None) -> list[Key]:
    """Returns the keys of a section class, with the values given in place of defaults."""
    values = {**defaults(cls), **(given or {})}
    return [
        Key(f"{path}.{name}", _text(values[name]), _values(kind, metadata), metadata["doc"])
        for name, (kind, metadata) in fields_of(cls).items()
    ]


def _text(value: Any) -> str:
    return repr(value) if isinstance(value, str) and (not value or value != value.strip()) else str(value)


def _values(kind: Any, metadata: Mapping[str, Any]) -> str:
    """Returns the values of a key in words: names, or the type with its range."""
    registry = re.search(r"(fxf\.[a-z_.]+)\.([A-Z_]+)", metadata["doc"])
    if registry:
        return ", ".join(getattr(importlib.import_module(registry[1]), registry[2]))
    if typing.get_origin(kind) is Literal:
        return ", ".join(typing.get_args(kind))
    if kind is bool:
        return "True, False"
    found = [f"{words} {metadata[name]}" for name, (_, words) in LIMITS.items() if metadata.get(name) is not None]
    return " ".join([kind.__name__, ", ".join(found)]).strip()


def as_text(tables: Mapping[str, Sequence[Key]]) -> str:
    """Returns the keys as text: a line with name, default and values, and the meaning below."""
    lines = []
    for path, keys in tables.items():
        for of, group in itertools.groupby(keys, lambda key: key.of):
            lines += [f"{path}, only of {', '.join(of)}:" if of else f"{path}:"]
            for key in group:
                lines.append(f"  {key.path.split('.')[1]} = {key.default}  ({key.values})")
                lines += textwrap.wrap(key.meaning, WIDTH - 6, initial_indent=" " * 6, subsequent_indent=" " * 6)
            lines.append("")
    return "\n".join(lines[:-1])


def as_markdown(tables: Mapping[str, Sequence[Key]]) -> str:
    """Returns a Markdown table for each section."""
    lines = []
    for path, keys in tables.items():
        lines += [f"## {path}", "", "| key | default | values | meaning |", "|---|---|---|---|"]
        for key in keys:
            only = f"; only of {', '.join(key.of)}" if key.of else ""
            cells = (f"`{key.path.split('.')[1]}`", f"`{key.default}`", key.values, key.meaning + only)
            lines.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines)
