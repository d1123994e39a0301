"""Documents of several sources by weight: where each is read, and its share of the rows, which `rows.py` mixes."""

import dataclasses
import os
import re
from pathlib import PurePath
from typing import Any, NamedTuple

from fxf.base.config import Field, checked, one_of, section
from fxf.base.errors import UserError, nearest
from fxf.data.documents import DocumentsConfig, unread

OF_ALL = ("tokenizer", "vocab_size", "lower_case", "test", "sources")  # keys that all sources share
WEIGHED = re.compile(r"\s*(.+?)\s*:\s*((?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*")  # as in wiki.jsonl.zst:3


class Part(NamedTuple):
    """A source of a mixture: how it is read, and its share of the rows; the shares add up to 1."""

    config: DocumentsConfig
    share: float


def parts_of(config: DocumentsConfig) -> dict[str, Part]:
    """Returns the sources of the `data` section in the order of their names, or its one source under the name "".

    Raises:
      UserError: a source has a wrong key or no name of its own, or a path has no weight while others have.
    """
    given = config.sources or _in_path(config.path)
    if not given:
        return {"": Part(config, 1.0)}
    of_section = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    known = ["weight", *(name for name in of_section if name not in OF_ALL)]
    parts = dict[str, Part]()
    if wrong := [name for name in given if not (name and isinstance(name, str))]:
        raise UserError(f"data.sources: expected a text for the name of each source, got {wrong[0]!r}")
    for name, keys in sorted(given.items()):
        where, own = f"data.sources.{name}", dict(keys)
        for each in own:
            one_of(each, known, where)
        weight = checked(own.pop("weight", 1.0), Field(float, {"above": 0, "below": 1e100}), f"{where}.weight")
        if not own.get("path"):
            raise UserError(f"{where}.path: missing{nearest(name, given.keys() - {name})}")
        ignored = unread(own.get("format", config.format))
        part = section(DocumentsConfig, {**of_section, "path": "", "sources": {}, **ignored, **own}, where)
        parts[name] = Part(part, weight)
    total = sum(part.share for part in parts.values())
    return {name: Part(part.config, part.share / total) for name, part in parts.items()}


def _in_path(path: str) -> dict[str, dict[str, Any]]:
    """Returns the sources that `data.path` names with their weights, as "wiki.jsonl.zst:3, code/*.parquet:1"."""
    if "," not in path or os.path.exists(os.path.expanduser(path)):  # the name of a file may have a comma
        return {}
    sources = dict[str, dict[str, Any]]()
    for piece in path.split(","):
        if not (weighed := WEIGHED.fullmatch(piece)):
            raise UserError(f"data.path: expected PATH:WEIGHT, as wiki.jsonl:3, got {piece.strip()!r} in {path!r}")
        # The part of the path that names it: of data/wiki.jsonl.zst wiki, of code/*.parquet code.
        named = [part for part in PurePath(weighed[1]).parts if not re.search(r"[*?\[/:]", part)]
        if (name := named[-1].lstrip(".").split(".")[0] if named else "source") in sources:
            raise UserError(f"data.path: two sources are named {name}; data.sources.NAME.path gives names")
        sources[name] = {"path": weighed[1], "weight": float(weighed[2])}
    return sources
