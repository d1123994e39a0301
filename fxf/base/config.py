"""Config sections as frozen dataclasses.

A config file returns an `ml_collections.ConfigDict` with every key of every section. `section` checks one and turns it
into the dataclass that the code reads, the one place that states a key's name, type, default, range and meaning.
"""

import copy
import dataclasses
import functools
import importlib
import math
import operator
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, TypeVar

from fxf.base.errors import UserError, nearest, warn_of_slips

SectionT = TypeVar("SectionT")
ChoiceT = TypeVar("ChoiceT")

PATH = re.compile(r"[A-Za-z_][\w.-]*:[A-Za-z_]\w*")  # module:name, to import

# The limits of `key`: the comparison of a value with its limit, and its words in an error.
LIMITS = {
    "minimum": (operator.ge, "at least"),
    "above": (operator.gt, "more than"),
    "maximum": (operator.le, "at most"),
    "below": (operator.lt, "less than"),
}
LARGEST_INT = 2**31 - 1  # steps, positions and sizes are int32 on the device


def key(default: Any, doc: str, *, argument: bool = False, when: str = "", **limits: float) -> Any:
    """Returns the dataclass field of a config key: its default, its meaning in one line, and the range of its values.

    Args:
      default: {} for a key that holds sections under names of the user's choice.
      argument: whether the number is an argument of the compiled training step; then another value compiles nothing.
      when: when something reads the key, by other keys of the section. `window`: it differs from its default.
        `format=json_lines or tfds`: it has one of these values, or names a part of the user's own. With several, joined
        by ", ", all must hold; those on keys that the section lacks do not count.
      limits: some of `LIMITS`, such as minimum=1.
    """
    assert limits.keys() <= LIMITS.keys(), limits
    made: Any = {"default_factory": dict, "hash": False} if default == {} else {"default": default}
    return dataclasses.field(**made, metadata={"doc": doc, "argument": argument, "when": when, **limits})


def arguments(config: Any) -> dict[str, float]:
    """Returns the values of a section's keys that are arguments of the training step."""
    return {f.name: getattr(config, f.name) for f in dataclasses.fields(config) if f.metadata.get("argument")}


def defaults(cls: type) -> dict[str, Any]:
    """Returns every key of the section class `cls` with its default."""
    return dataclasses.asdict(cls())


def section(cls: type[SectionT], values: Any, path: str) -> SectionT:
    """Builds the section class `cls` from a mapping of its keys; an absent key has its default.

    Raises:
      UserError: a key is unknown, of the wrong type or out of range, or nothing reads it; the text names `path.key`.
    """
    if not isinstance(values, Mapping):
        raise UserError(f"{path}: expected a section of keys, got {values!r}")
    fields = fields_of(cls)
    for name in values:
        if name not in fields:
            near = nearest(str(name), fields) or f" ({path} has: {', '.join(fields)})"
            raise UserError(f"{path}.{name}: unknown key{near}")
    made = cls(**{name: checked(value, fields[name], f"{path}.{name}") for name, value in values.items()})
    require_read(path, made, values)
    return made


def unread(cls: type, values: Mapping[str, Any]) -> dict[str, str]:
    """Returns the keys of the section class `cls` that nothing reads beside these values of its keys, and why."""
    found, fields = dict[str, str](), {field.name: field for field in dataclasses.fields(cls)}
    for name, field in fields.items():
        for condition in field.metadata.get("when", "").split(", "):
            other, equals, words = condition.partition("=")
            if other in fields:
                default = fields[other].default
                value = default if other in found else values.get(other, default)
                is_read = value != default
                if equals:
                    is_read = str(value) in words.split(" or ") or ":" in str(value)
                if not is_read:
                    found[name] = f"{other} {value!r} nothing reads it" + (f" (only with {words})" if equals else "")
    return found


def with_changes(cls: type, values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of a section with some changed. Others that nothing reads then return to their defaults."""
    changed = {**values, **changes}
    return changed | {name: default_of(cls, name) for name in unread(cls, changed).keys() - changes}


def default_of(cls: type, name: str) -> Any:
    return getattr(cls, name, {})  # the default {} is no attribute of the class


def require_read(path: str, section: Any, names: Iterable[str]) -> None:
    """Raises a UserError if one of these keys of a section differs from its default, and nothing reads it."""
    for name, why in unread(type(section), vars(section)).items():
        if name in names:
            short = path.rpartition(" ")[2]  # without a file's name in front
            require_off(path, section, {name: default_of(type(section), name)}, f"with {short}.{why}")


class Field(typing.NamedTuple):
    """The type of a key, its `key(...)` metadata (meaning and limits), and whether it has no default."""

    kind: Any
    limits: Mapping[str, Any]
    required: bool = False


def fields_of(cls: type) -> dict[str, Field]:
    """Returns the keys of a section class, or of a layer's, by name."""
    types = typing.get_type_hints(cls)
    # Both are MISSING for a required field.
    return {f.name: Field(types[f.name], f.metadata, f.default is f.default_factory) for f in dataclasses.fields(cls)}


def registered_section(cls: type[SectionT], values: Mapping[str, Any], path: str) -> SectionT:
    """Builds the section of entry `values["name"]`, also if the class has another default name; raises as `section`."""
    found: Any = section(cls, {**values, "name": defaults(cls).get("name", values["name"])}, path)
    return dataclasses.replace(found, name=values["name"])


def checked(value: Any, field: Field, path: str) -> Any:
    """Returns `value` as a field's type, or raises a UserError that names `path`."""
    kind, limits = field.kind, field.limits
    if typing.get_origin(kind) in (typing.Union, types.UnionType):  # as `int | None`
        kind = min(typing.get_args(kind), key=lambda each: (each is not type(value), each is type(None)))
    if kind is Any:
        return value
    if kind is dict or typing.get_origin(kind) is dict:
        return _plain(value, path)
    if typing.get_origin(kind) is Literal:
        return one_of(value, typing.get_args(kind), path)
    value = value.item() if getattr(value, "shape", None) == () else value  # a number of NumPy
    if kind is float and type(value) is int:
        value = float(value)
    if kind is str and isinstance(value, str):
        return value if isinstance(value, Named) else Named(value)
    if type(value) is not kind:
        raise UserError(f"{path}: expected {kind.__name__}, got {value!r}")
    if kind is int and value > LARGEST_INT:
        raise UserError(f"{path}: expected at most {LARGEST_INT}, the largest int32, got {value}")
    if kind is float and not math.isfinite(value):
        raise UserError(f"{path}: expected a finite number, got {value}")
    if kind in (int, float):
        value += 0  # -0.0 becomes 0.0, which would be another config
        for name, (holds, words) in LIMITS.items():
            if (limit := limits.get(name)) is not None and not holds(value, limit):
                raise UserError(f"{path}: expected {words} {limit}, got {value}")
    return value


def require_off(path: str, section: Any, keys: Mapping[str, Any], why: str) -> None:
    """Raises a UserError with the reason `why` if a key of a section is on: differs from its off value in `keys`."""
    for name, off in keys.items():
        if getattr(section, name) != off:
            is_default = getattr(type(section), name, off) == off
            raise UserError(f"{path}.{name}: {why}; {'leave it at' if is_default else 'set it to'} {off!r}")


def _plain(value: Any, path: str) -> dict[str, dict[str, Any]]:
    """Returns sections of keys as plain dicts; the reader of a section checks its keys."""
    sections = value.to_dict() if hasattr(value, "to_dict") else value
    for name, keys in [("", sections), *(sections.items() if isinstance(sections, Mapping) else ())]:
        if not isinstance(keys, Mapping):
            raise UserError(f"{f'{path}.{name}'.rstrip('.')}: expected a section of keys, got {keys!r}")
    return {name: dict(keys) for name, keys in sections.items()}


def one_of(value: Any, valid: Any, path: str) -> Any:
    """Returns `value` if it is among the names `valid`, else raises a UserError that names `path`.

    With `Choices`, it may also be a path, module:name, to import.
    """
    if not isinstance(value, str) or value not in valid:
        own = "; or module:name of your own" if isinstance(valid, Choices) else ""
        raise UserError(f"{path}: expected one of {', '.join(valid)}{own}; got {value!r}{nearest(str(value), valid)}")
    if isinstance(valid, Choices):
        try:
            valid[value]
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
    return value


class Named(str):
    """The value of a text key. It caches the entry of `Choices` that it names, which may differ in another run."""

    def __init__(self, text: str) -> None:
        self.found: dict[int, Any] = {}

    def __reduce__(self) -> Any:
        return str, (str(self),)  # copies, such as those of `dataclasses.asdict`, are plain text


class Choices(dict[str, ChoiceT]):
    """The things that a key may name: fxf's by name, and a user's own by a path, `module:name`, which is imported.

        ATTENTIONS = Choices(softmax=...)
        ATTENTIONS["my_file:sigmoid"]  # `sigmoid` in my_file.py, beside the config file or in the working directory

    A process imports a module once. Exceptions of the module pass through unchanged.
    """

    closed = False  # True while a config file runs: whatever loads its run later would not know its entries

    def __setitem__(self, name: str, value: ChoiceT) -> None:
        if Choices.closed:
            raise UserError(f"'{name}': a config names a part of your own by its path, as mine:{name}, not in a table")
        super().__setitem__(name, value)

    def __getitem__(self, name: str) -> ChoiceT:
        found = name.found if isinstance(name, Named) else {}
        if id(self) not in found:
            found[id(self)] = super().__getitem__(name)
        return found[id(self)]

    def __contains__(self, name: Any) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and PATH.fullmatch(name) is not None)

    def __missing__(self, name: str) -> ChoiceT:
        """Imports and returns what the path names.

        Raises:
          UserError: there is no such module, it has no such name, or the object has another type than the entries.
        """
        module_name, colon, attribute = name.partition(":")
        if not colon:
            raise KeyError(name)
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name and not f"{module_name}.".startswith(f"{error.name}."):
                raise  # an import inside the user's module
            places = "beside the config file, in the working directory and among installed packages"
            hint = f"; did you mean '{module_name[:-3]}{colon}{attribute}'?" if module_name.endswith(".py") else ""
            raise UserError(f"{name}: no module '{module_name}' {places}{hint}") from None
        if not hasattr(module, attribute):
            near = nearest(attribute, vars(module))
            raise UserError(f"{name}: {getattr(module, '__file__', module_name)} has no '{attribute}'{near}")
        found, first = getattr(module, attribute), next(iter(self.values()))
        if not isinstance(found, type(first)) and not (callable(first) and callable(found)):
            raise UserError(f"{name}: expected {type(first).__module__}.{type(first).__name__}, got {found!r}")
        warn_of_slips(found if isinstance(found, type) else type(found))
        return found


def flatten(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields ('section.key', value) for every leaf of a nested mapping, in order."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def with_values(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a copy of a nested config in which some keys, 'section.key', have other values."""
    result = copy.deepcopy(dict(config))
    for key, value in changes.items():
        *sections, name = key.split(".")
        functools.reduce(lambda holder, section: holder.setdefault(section, {}), sections, result)[name] = value
    return result


def differing_keys(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Returns the keys whose values differ between two configs, and those that only one of them has."""
    flat_a, flat_b = dict(flatten(a)), dict(flatten(b))
    absent = object()
    return [k for k in {**flat_a, **flat_b} if flat_a.get(k, absent) != flat_b.get(k, absent)]


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Returns `key (VALUE there, VALUE here), …` for the keys that differ between two configs; "" if none does.

    Digests are cut to eight digits.
    """
    old, new = dict(flatten(there)), dict(flatten(here))
    return ", ".join(
        f"{key} ({_short(old.get(key, 'absent'))} there, {_short(new.get(key, 'absent'))} here)"
        for key in differing_keys(there, here)
    )


def _short(value: Any) -> Any:
    """Returns the first eight digits of a digest (`fxf.base.files.digest`), and any other value as it is."""
    return value[:8] if isinstance(value, str) and re.fullmatch("[0-9a-f]{32}", value) else value
