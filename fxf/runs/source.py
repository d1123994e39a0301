"""The `start` section, which names the weights that training starts from, and the kinds of sources that hold them."""

import dataclasses
import re
from pathlib import Path
from typing import Literal, NamedTuple

from fxf.base.config import key
from fxf.base.errors import UserError, did_you_mean, nearest
from fxf.base.files import folder_at, read_json
from fxf.reports.run_files import CONFIG, is_run
from fxf.runs.run_folder import has_begun


@dataclasses.dataclass(frozen=True)
class StartConfig:
    """The `start` section: the weights that training starts from."""

    path: str = key(
        "",
        "source of the weights: RUN, RUN:STEP, a safetensors file, or a folder of transformers; by default they are "
        "drawn at random",
    )
    weights: str = key(
        "*",
        "patterns of the weights to take, such as blocks/*/attention/*,!blocks/0/*; the others are drawn at random",
        when="path",
    )
    on_mismatch: Literal["stop", "draw"] = key(
        "stop", "stop at, or draw at random, weights that the source lacks or has in another shape", when="path"
    )
    adapters: str = key("", "a folder of PEFT, whose adapters training starts from; by default new", when="path")


class Source(NamedTuple):
    """A source of weights. `step` is that of a run's checkpoint; None: the one of its result."""

    kind: Literal["run", "file", "folder"]
    place: Path
    step: int | None = None


def source_of(path: str) -> Source:
    """Returns the source that `start.path` names. A run's `config.json` has an identity; that of transformers has none.

    Raises:
      UserError: there is no such run, file or folder.
    """
    place, step = folder_at(path, "start.path"), None
    if not place.exists() and (found := re.fullmatch(r"(.+):(\d+)", path)):
        place, step = folder_at(found[1], "start.path"), int(found[2])
    if not place.exists():
        beside = [file.name for file in place.parent.iterdir()] if place.parent.is_dir() else []
        near = nearest(place.name, beside) or "; fxf downloads no model"
        raise UserError(f"start.path: {path}: no run, file or folder is there{near}")
    if not place.is_dir():
        config = place.with_name(CONFIG)
        if place.name.startswith("model") and config.exists() and "model_type" in read_json(config, "JSON"):
            raise UserError(f"start.path: {path}: a file of transformers; give its folder, {place.parent}")
        return Source("file", place)
    if not (place / CONFIG).exists():
        expected = "expected a run, a safetensors file or a folder of transformers"
        hint = "; start.adapters names adapters of PEFT" if (place / "adapter_config.json").exists() else ""
        if run := next(filter(is_run, place.parents[:2]), None):
            hint = did_you_mean(f"{run}:{place.name}" if place.name.isdecimal() else str(run))
        raise UserError(f"start.path: {path}: {expected}; it has no config.json{hint}")
    if "identity" in read_json(place / CONFIG, "JSON"):
        return Source("run", place, step)
    if step is not None:
        raise UserError(f"start.path: {path}: only a run has steps; {place} is a folder of transformers")
    return Source("folder", place)


def folder_of_files(config: StartConfig, workdir: Path | None) -> Path | None:
    """Returns the folder from which a task reads its files: the run's, or the source's if the run has not begun."""
    if workdir is not None and has_begun(workdir):
        return workdir
    if config.path and (source := source_of(config.path)).kind != "file":
        return source.place
    return None if workdir is not None and (workdir / CONFIG).exists() else workdir  # files there may be another run's
