"""Mixtures of documents: the config of each source and its share of the rows. `rows.py` mixes the rows."""

import os
import re
from pathlib import PurePath
from typing import Any, NamedTuple

from fxf.base.config import Field, checked, one_of, section, with_changes
from fxf.base.errors import UserError, nearest
from fxf.data.documents import DocumentsConfig

SHARED = ("tokenizer", "vocab_size", "lower_case", "test", "sources")  # keys that all sources share
WEIGHTED = re.compile(r"\s*(.+?)\s*:\s*((?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*")  # PATH:WEIGHT


class Part(NamedTuple):
    """A source of a mixture: its config, and its share of the rows. The shares add up to 1."""

    config: DocumentsConfig
    share: float


def sources_of(config: DocumentsConfig) -> dict[str, Part]:
    """Returns the sources of the `data` section, sorted by name. A single source has the name "".

    Raises:
      UserError: a source has a wrong key, no path or no name of its own; or only some paths have a weight.
    """
    sources = config.sources or _in_path(config.path)
    if not sources:
        return {"": Part(config, 1.0)}
    defaults = vars(config)
    known = ["weight", *(name for name in defaults if name not in SHARED)]
    parts = dict[str, Part]()
    if wrong := [name for name in sources if not (name and isinstance(name, str))]:
        raise UserError(f"data.sources: expected a text for the name of each source, got {wrong[0]!r}")
    for name, keys in sorted(sources.items()):
        where, own = f"data.sources.{name}", dict(keys)
        for key in own:
            one_of(key, known, where)
        weight = checked(own.pop("weight", 1.0), Field(float, {"above": 0, "below": 1e100}), f"{where}.weight")
        if not own.get("path"):
            raise UserError(f"{where}.path: missing{nearest(name, sources.keys() - {name})}")
        values = with_changes(DocumentsConfig, {**defaults, "path": "", "sources": {}}, own)
        part = section(DocumentsConfig, values, where)
        parts[name] = Part(part, weight)
    total = sum(part.share for part in parts.values())
    return {name: Part(part.config, part.share / total) for name, part in parts.items()}


def _in_path(path: str) -> dict[str, dict[str, Any]]:
    """Returns the path and weight of each source in `data.path`, such as "wiki.jsonl.zst:3, code/*.parquet:1"."""
    if "," not in path or os.path.exists(os.path.expanduser(path)):  # a file's name may have a comma
        return {}
    sources = dict[str, dict[str, Any]]()
    for piece in path.split(","):
        if not (weighted := WEIGHTED.fullmatch(piece)):
            raise UserError(f"data.path: expected PATH:WEIGHT, such as wiki.jsonl:3, got {piece.strip()!r} in {path!r}")
        # The name comes from the path: "wiki" from data/wiki.jsonl.zst, "code" from code/*.parquet.
        plain = [part for part in PurePath(weighted[1]).parts if not re.search(r"[*?\[/:]", part)]
        if (name := plain[-1].lstrip(".").split(".")[0] if plain else "source") in sources:
            raise UserError(f"data.path: two sources are named {name}; data.sources.NAME.path gives names")
        sources[name] = {"path": weighted[1], "weight": float(weighted[2])}
    return sources
