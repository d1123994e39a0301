"""The registries to which a config file may add, and who added what."""

import ast
import contextlib
import dataclasses
import re
import sys
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from fxf.errors import UserError, errors_of, nearest, shown
from fxf.runs.signatures import require_takes, required_names

# By the kind and the name of an entry: the digests of the file that registered it, and of what that imports.
owners: dict[tuple[str, str], set[str]] = {}

KEY_TYPES = (bool, int, float, str)
# Keys of a section that not only its task or model reads.
NEEDED = {"task": ("name",), "model": ("name", "max_len")}


def by_kind() -> dict[str, dict[str, Any]]:
    """Returns the registries to which a config file may add, by what their entries are called."""
    from fxf.data.corpus import CORPORA
    from fxf.data.tokenizer import TOKENIZERS
    from fxf.layers.attention import ATTENTIONS
    from fxf.layers.block_kinds import BLOCKS
    from fxf.layers.feed_forward import ACTIVATIONS, FEED_FORWARDS
    from fxf.layers.linear_attention import FEATURE_MAPS
    from fxf.layers.normalization import NORMS
    from fxf.layers.positions import POSITIONS
    from fxf.models import MODELS
    from fxf.tasks import TASKS
    from fxf.tasks.text_metrics import METRICS
    from fxf.training.optimizer import OPTIMIZERS, SCHEDULES
    from fxf.training.trackers import TRACKERS

    return {
        "activation": ACTIVATIONS,
        "attention": ATTENTIONS,
        "block": BLOCKS,
        "corpus": CORPORA,
        "feature map": FEATURE_MAPS,
        "feed-forward layer": FEED_FORWARDS,
        "metric": METRICS,
        "model": MODELS,
        "norm": NORMS,
        "optimizer": OPTIMIZERS,
        "positions": POSITIONS,
        "schedule": SCHEDULES,
        "task": TASKS,
        "tokenizer": TOKENIZERS,
        "tracker": TRACKERS,
    }


@contextlib.contextmanager
def registrations(path: Path, digests: set[str], within: str = "") -> Iterator[set[tuple[str, str]]]:
    """Yields a set that holds in the end the kind and the name of what was registered meanwhile by the file.

    Of a name that a file of the same digests has registered, the first entry stays. An error leaves all as it was.

    Args:
      within: the function that is called, which may register nothing.

    Raises:
      UserError: an entry was there already or is not of its kind, or `within` registers one.
    """
    every, absent = by_kind(), object()
    added: set[tuple[str, str]] = set()
    before = {kind: dict(registry) for kind, registry in every.items()}
    try:
        yield added
        for kind, registry in every.items():
            for name in [*{**before[kind], **registry}]:
                if registry.get(name, absent) is before[kind].get(name, absent):
                    continue
                if within:
                    raise UserError(
                        f"{shown(path)}: {within} registers {kind} '{name}'; do that at the top of the file"
                    )
                if name in before[kind] and owners.get((kind, name)) != digests:
                    raise UserError(f"{shown(path)}: {kind} '{name}' is registered already; {_instead(path)}")
                with errors_of(path):
                    _require_entry(f"{kind} {name!r}", kind, name, registry)
                registry[name] = before[kind].get(name, registry.get(name))
                added.add((kind, name))
    except BaseException:
        for kind, registry in every.items():
            registry.clear()
            registry.update(before[kind])
        raise
    owners.update(dict.fromkeys(added, digests))


def require_each_once(module: ModuleType, tree: ast.Module) -> None:
    """Raises a UserError if the top level of an executed file registers a name twice; the first entry would be lost."""
    kinds = {id(registry): kind for kind, registry in by_kind().items()}
    seen: set[str] = set()
    for target in (target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets):
        if not (isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name)):
            continue
        kind, name = kinds.get(id(vars(module).get(target.value.id))), ast.unparse(target.slice)
        if kind and f"{kind} {name}" in seen:
            raise UserError(f"{kind} {name} is registered twice, again in line {target.lineno}")
        seen.add(f"{kind} {name}")


def _instead(path: Path) -> str:
    """Returns what to do where a name of the file is taken."""
    program = any(getattr(sys.modules.get(name), "__file__", None) == str(path) for name in [path.stem, "__main__"])
    return (
        "the program executed this file itself; let fxf.read_config alone do so" if program else "choose another name"
    )


def _require_entry(where: str, kind: str, name: Any, registry: Mapping[Any, Any]) -> None:
    """Raises a UserError if an entry is not of the kind of the registry's first one, or its sections are not valid."""
    from fxf.runs.experiment import SECTIONS  # here, because it imports all of fxf

    first, entry = next(iter(registry.values())), registry[name]
    expected = "a function" if callable(first) else f"{type(first).__module__}.{type(first).__name__}"
    if not isinstance(name, str):
        raise UserError(f"{where}: expected a str for its name")
    if not name.isprintable() or not re.fullmatch(r"[^\s,]+", name):
        raise UserError(f"{where}: expected a name without spaces and commas, which a config can hold")
    if not (callable(entry) if callable(first) else isinstance(entry, type(first))):
        raise UserError(f"{where}: expected {expected}, got {type(entry).__name__}")
    sections = entry.sections if kind == "task" else {kind: entry.config} if kind in ("model", "optimizer") else {}
    if not isinstance(sections, dict):
        raise UserError(f"{where}: expected a dict of section classes by name, got {sections!r}")
    for section, cls in sections.items():
        if kind == "task" and section in ("seed", "model", *SECTIONS):
            raise UserError(f"{where}: section '{section}' is one of fxf's own; choose another name")
        _require_section(f"{where}: section '{section}'", cls, NEEDED.get(section, ()))
    if kind == "optimizer" and not issubclass(entry.config, first.config):
        raise UserError(f"{where}: expected a subclass of {first.config.__name__}, got {entry.config.__name__}")
    if kind == "optimizer" and (unknown := {*entry.reads} - {field.name for field in dataclasses.fields(first.config)}):
        known = [field.name for field in dataclasses.fields(first.config)]
        raise UserError(f"{where}: reads: unknown key '{min(unknown)}'{nearest(min(unknown), known)}")
    if kind == "task" and not entry.models:
        raise UserError(f"{where}: expected the names of models that fit it, got none")
    if kind == "task" and "task" not in sections:
        raise UserError(f"{where}: expected a section 'task' among its own, got {', '.join(sections) or 'none'}")
    if kind != "task":  # whose class is called, and has its own line, when a config names it
        _require_functions(where, entry, [other for other_name, other in registry.items() if other_name != name])


def _require_functions(where: str, entry: Any, others: list[Any]) -> None:
    """Raises a UserError if a function of an entry does not take the arguments that those of the others take."""
    for field in getattr(entry, "_fields", ("",)):
        function, *like = [getattr(each, field) if field else each for each in (entry, *others)]
        known = next((each for each in like if callable(each)), None)
        if known is not None and function is not None:
            require_takes(f"{where}: {field}" if field else where, function, required_names(known))


def _require_section(where: str, cls: Any, needed: tuple[str, ...]) -> None:
    """Raises a UserError if a class is no dataclass whose fields can be the keys of a config's section."""
    if not isinstance(cls, type) or not dataclasses.is_dataclass(cls):
        raise UserError(f"{where}: expected a dataclass, got {cls!r}")
    fields, types = dataclasses.fields(cls), typing.get_type_hints(cls)
    for field in fields:
        if field.default is dataclasses.MISSING:
            raise UserError(f"{where}: {cls.__name__}.{field.name} has no default")
        if types[field.name] not in KEY_TYPES and typing.get_origin(types[field.name]) is not Literal:
            raise UserError(f"{where}: {cls.__name__}.{field.name}: expected bool, int, float, str or a Literal")
    if missing := {*needed} - {field.name for field in fields}:
        raise UserError(f"{where}: {cls.__name__} has no key {' and '.join(sorted(missing))}")
