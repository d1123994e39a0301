"""Documents of several sources by weight: where each is read, and its share of the rows."""

import dataclasses
import re
from pathlib import PurePath
from typing import Any, NamedTuple

from fxf.config import key, section
from fxf.data.documents import DocumentsConfig, unread
from fxf.errors import UserError, nearest
from fxf.files import folder_at

OF_ALL = ("tokenizer", "vocab_size", "lower_case", "sources")  # keys that all sources share
WEIGHED = re.compile(r"\s*(.+?)\s*:\s*(\d+(?:\.\d*)?|\.\d+)\s*")  # as in wiki.jsonl.zst:3


@dataclasses.dataclass(frozen=True)
class Weight:
    """The key of a source beside those of its documents."""

    weight: float = key(1.0, "the source's share of the rows, in proportion to those of the others", above=0)


class Part(NamedTuple):
    """A source of a mixture: how it is read, and its share of the rows; the shares add up to 1."""

    config: DocumentsConfig
    share: float


def parts_of(config: DocumentsConfig) -> dict[str, Part]:
    """Returns the sources of the `data` section by name, or its one source under the name "".

    Raises:
      UserError: a source has a wrong key or no name of its own, or a path has no weight while others have.
    """
    given = config.sources or _in_path(config.path)
    if not given:
        return {"": Part(config, 1.0)}
    configs, weights = dict[str, DocumentsConfig](), list[float]()
    for name, keys in given.items():
        where, other = f"data.sources.{name}", dict(keys)
        own = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
        for key_name in set(other) - set(own) - {"weight"} | set(other) & {*OF_ALL}:
            known = [each for each in ("weight", *own) if each not in OF_ALL]
            raise UserError(f"{where}: expected one of {', '.join(known)}; got {key_name!r}{nearest(key_name, known)}")
        weights.append(section(Weight, {"weight": other.pop("weight", 1.0)}, where).weight)
        ignored = unread(other.get("format", config.format))
        configs[name] = section(DocumentsConfig, {**own, "path": "", "sources": {}, **ignored, **other}, where)
        if configs[name].format == "text":
            raise UserError(f"{where}.format: expected documents; set data.format, for example to json_lines")
    return {name: Part(configs[name], weight / sum(weights)) for name, weight in zip(configs, weights, strict=True)}


def _in_path(path: str) -> dict[str, dict[str, Any]]:
    """Returns the sources that `data.path` names with their weights, as "wiki.jsonl.zst:3, code/*.parquet:1"."""
    pieces = path.split(",")
    found = [WEIGHED.fullmatch(piece) for piece in pieces]
    if not any(found) or folder_at(path, "data.path").exists():
        return {}
    sources = dict[str, dict[str, Any]]()
    for piece, weighed in zip(pieces, found, strict=True):
        if not weighed:
            raise UserError(f"data.path: expected a weight behind each path, as in {piece.strip()}:1; got {path!r}")
        # The part of the path that names it: of data/wiki.jsonl.zst wiki, of code/*.parquet code.
        names = [part.split(".")[0] for part in PurePath(weighed[1]).parts if not re.search(r"[*?\[/:]", part)]
        name = next((each for each in reversed(names) if each), "source")
        if name in sources:
            raise UserError(f"data.path: two sources are named {name}; data.sources.NAME.path gives names")
        sources[name] = {"path": weighed[1], "weight": float(weighed[2])}
    return sources
