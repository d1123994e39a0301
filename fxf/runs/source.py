"""The `start` section, which names the weights that training starts from, and the kinds of places that hold them."""

import dataclasses
import os
import re
from pathlib import Path
from typing import Literal, NamedTuple

from fxf.config import key
from fxf.errors import UserError, nearest
from fxf.files import folder_at, read_json
from fxf.reports import best


@dataclasses.dataclass(frozen=True)
class StartConfig:
    """The `start` section: the weights that training starts from."""

    path: str = key(
        "",
        "source of the weights: RUN, RUN:STEP, a safetensors file, or a folder of transformers; by default they are "
        "drawn at random",
    )
    state: Literal["weights", "all"] = key(
        "weights", "weights: only these; all: also the optimizer's state, from a run with the same optimizer"
    )
    weights: str = key(
        "*", "patterns of the weights to take, such as blocks/*/attention/*,!blocks/0/*; the others are drawn at random"
    )
    on_mismatch: Literal["stop", "draw"] = key(
        "stop", "stop at, or draw at random, a weight that the source lacks or has in another shape"
    )

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self)[1:]:
            if not self.path and getattr(self, field.name) != field.default:
                raise UserError(f"start.{field.name}: without start.path nothing reads it; leave it at {field.default}")
        if self.state == "all" and (self.weights, self.on_mismatch) != ("*", "stop"):
            raise UserError(
                "start.state: 'all' takes every weight; leave start.weights at * and start.on_mismatch at stop"
            )


class Source(NamedTuple):
    """A place that holds weights. `step` is that of a run's checkpoint; None for the one that the run reports."""

    kind: Literal["run", "file", "folder"]
    place: Path
    step: int | None = None

    @property
    def files(self) -> Path | None:
        """The folder with the source's tokenizer, if it has one."""
        return None if self.kind == "file" else self.place


def source_of(path: str) -> Source:
    """Returns the source that `start.path` names. A run's `config.json` has an identity; that of transformers has none.

    Raises:
      UserError: there is no such run, file or folder.
    """
    where, step = os.path.expanduser(path), None
    place = folder_at(where, "start.path")
    if not place.exists() and (found := re.fullmatch(r"(.+):(\d+)", where)):
        place, step = folder_at(found[1], "start.path"), int(found[2])
    if place.is_dir():
        try:
            kind: Literal["run", "folder"] = (
                "run" if "identity" in read_json(place / "config.json", "JSON") else "folder"
            )
        except FileNotFoundError:
            expected = "expected a run, a safetensors file or a folder of transformers"
            raise UserError(f"start.path: {path}: {expected}; it has no config.json{_best_in(place)}") from None
        if step is None or kind == "run":
            return Source(kind, place, step)
    elif place.exists() and step is None:
        return Source("file", place)
    if step is not None and place.exists():
        raise UserError(f"start.path: {path}: only a run has steps")
    beside = [file.name for file in place.parent.iterdir()] if place.parent.is_dir() else []
    raise UserError(f"start.path: {path}: no run, file or folder is there{nearest(place.name, beside)}")


def _best_in(folder: Path) -> str:
    """Returns words on the best of the runs in a folder, or on one of them; none if there is no run."""
    if (found := best.comparison_in(folder)) is None:
        return ""
    if (first := best.best_run(found)) is None:
        return f"; it holds runs, such as {found.runs[0].folder}"
    return f"; it holds runs, of which the first by {first.name} is {first.run.folder}"


def folder_of_files(config: StartConfig, workdir: Path | None) -> Path | None:
    """Returns the folder from which a task reads its files: the run's, or before the run has begun the source's."""
    if not config.path or (workdir is not None and (workdir / "config.json").exists()):
        return workdir
    return source_of(config.path).files or workdir
