"""Trackers: where the records of a run go besides its own files, such as TensorBoard and Weights & Biases."""

import json
import logging
import os
import secrets
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fxf.config import Choices, one_of
from fxf.errors import UserError, one_line

log = logging.getLogger(__name__)

# Figures of training by group; the group and the name, such as speed/steps_per_second, are a tag.
GROUPS = {
    **dict.fromkeys(("steps_per_second", "tokens_per_second", "data_seconds_per_step", "mfu"), "speed"),
    **dict.fromkeys(("device_bytes", "device_peak_bytes"), "memory"),
}

OnRecord = Callable[[int, dict[str, float]], None]


class Tracker(Protocol):
    """What receives the records of a run. It is made with the run folder and the step from which the run goes on.

    An exception in it ends the tracker with a warning, and not the run.
    """

    def config(self, config: dict[str, Any]) -> None:
        """Receives every key of every section, nested."""

    def scalars(self, step: int, values: dict[str, float]) -> None:
        """Receives figures by tag, such as train/loss."""

    def texts(self, step: int, texts: dict[str, str]) -> None:
        """Receives Markdown by tag, such as samples/test."""

    def pictures(self, step: int, pictures: dict[str, np.ndarray]) -> None:
        """Receives pictures by tag, each uint8 [height, width, 3]."""

    def files(self, paths: Sequence[Path]) -> None:
        """Receives files of the run folder when the run has ended."""

    def close(self) -> None:
        """Ends the tracker."""


class TensorBoard:
    """Event files, which tensorboardX writes; a resumed run replaces what was recorded after the step it goes on from.

    Its RecordWriter has no thread, unlike its SummaryWriter, which waits forever when the disk is full.
    """

    def __init__(self, folder: Path, resumed_at: int) -> None:
        # Imported here because it takes a tenth of a second; an installed PyTorch, which it would import, a second.
        with _hidden("torch"):
            from tensorboardX import summary
            from tensorboardX.proto.event_pb2 import Event, SessionLog
            from tensorboardX.record_writer import RecordWriter

        self._summary, self._event = summary, Event
        place = folder / "tensorboard"
        place.mkdir(exist_ok=True)
        self._writer = RecordWriter(str(place / f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}"))
        self._write(0, file_version="brain.Event:2")
        self._write(resumed_at + 1, session_log=SessionLog(status=SessionLog.START))
        self._writer.flush()

    def config(self, config: dict[str, Any]) -> None:
        self.texts(0, {"config": f"```json\n{json.dumps(config, indent=1)}\n```"})

    def scalars(self, step: int, values: dict[str, float]) -> None:
        for tag, value in values.items():
            self._write(step, summary=self._summary.scalar(tag, value))
        self._writer.flush()

    def texts(self, step: int, texts: dict[str, str]) -> None:
        for tag, text in texts.items():
            self._write(step, summary=self._summary.text(tag, text))
        self._writer.flush()

    def pictures(self, step: int, pictures: dict[str, np.ndarray]) -> None:
        for tag, picture in pictures.items():
            self._write(step, summary=self._summary.image(tag, picture, dataformats="HWC"))
        self._writer.flush()

    def files(self, paths: Sequence[Path]) -> None:
        """They are beside the event files already."""

    def _write(self, step: int, **fields: Any) -> None:
        self._writer.write(self._event(wall_time=time.time(), step=step, **fields).SerializeToString())

    def close(self) -> None:
        self._writer.close()


@contextmanager
def _hidden(library: str) -> Iterator[None]:
    """Makes a library, unless it is imported already, seem not to be installed."""
    if library in sys.modules:
        yield
        return
    sys.modules[library] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[library]


class WeightsAndBiases:
    """A run of Weights & Biases in the project WANDB_PROJECT, or fxf. WANDB_MODE=offline records it in the run folder.

    The file wandb_id.txt keeps its id, so a resumed run goes on with the same one.
    """

    def __init__(self, folder: Path, resumed_at: int) -> None:
        try:
            import wandb
        except ImportError:
            raise UserError("log.trackers: wandb is not installed; run pip install 'fxf[wandb]'") from None
        self._wandb = wandb
        named = folder / "wandb_id.txt"
        if not named.exists():
            named.write_text(secrets.token_hex(4))
        self._run = wandb.init(
            dir=str(folder),
            id=named.read_text(),
            name=folder.name,
            project=os.environ.get("WANDB_PROJECT", "fxf"),
            resume="allow",
            settings=wandb.Settings(console="off", silent=True),
        )

    def config(self, config: dict[str, Any]) -> None:
        self._run.config.update(config, allow_val_change=True)

    def scalars(self, step: int, values: dict[str, float]) -> None:
        self._run.log(values, step=step)

    def texts(self, step: int, texts: dict[str, str]) -> None:
        tables = {tag: self._wandb.Table(columns=["text"], data=[[text]]) for tag, text in texts.items()}
        self._run.log(tables, step=step)

    def pictures(self, step: int, pictures: dict[str, np.ndarray]) -> None:
        self._run.log({tag: self._wandb.Image(picture) for tag, picture in pictures.items()}, step=step)

    def files(self, paths: Sequence[Path]) -> None:
        for path in paths:
            shutil.copy(path, self._run.dir)  # whose files belong to the run

    def close(self) -> None:
        self._run.finish()


# Each is made as `TRACKERS[name](folder, resumed_at)`; a config file may add its own.
TRACKERS: Choices[Callable[[Path, int], Tracker]] = Choices({"wandb": WeightsAndBiases})


def require_trackers(names: str) -> list[str]:
    """Returns the names in a comma-separated list. Raises a UserError if one is not of a tracker."""
    return [one_of(name.strip(), TRACKERS, "log.trackers") for name in names.split(",") if names.strip()]


def _with_methods(name: str, tracker: Any) -> Tracker:
    """Returns the tracker. Raises a UserError if it lacks a method."""
    methods = [each for each in vars(Tracker) if not each.startswith("_")]
    if lacking := [each for each in methods if not callable(getattr(tracker, each, None))]:
        raise UserError(f"log.trackers: '{name}' has no method {lacking[0]}; a tracker has {', '.join(methods)}")
    return tracker


class Trackers:
    """The trackers of a run. One that raises an exception gets no more records, and a warning says so.

    The caller that makes them closes them, so that they can receive figures that are known only after the run.

    Args:
      on_record: a function that receives each record of figures too. Its exceptions go on to the caller.
    """

    def __init__(self, on_record: OnRecord | None = None) -> None:
        self._open: dict[str, Tracker] = {}
        self._on_record = on_record

    def open(self, makers: Mapping[str, Callable[[Path, int], Tracker]], folder: Path, resumed_at: int) -> None:
        """Makes the trackers. Raises a UserError if one lacks its package or a method."""
        for name, make in makers.items():
            try:
                self._open[name] = _with_methods(name, make(folder, resumed_at))
            except UserError:
                raise
            except Exception as error:
                self._warn(name, error)

    def config(self, config: dict[str, Any]) -> None:
        self._tell("config", config)

    def scalars(self, step: int, group: str, values: Mapping[str, Any]) -> None:
        """Tells the figures of a group: train, validation or test. What is no number is left out."""
        numbers = {name: float(value) for name, value in values.items() if isinstance(value, int | float)}
        if self._on_record and group != "test":
            self._on_record(step, numbers)
        of_training = group == "train"
        tags = {name: GROUPS.get(name, group) if of_training else group for name in numbers}
        named = {f"{tags[name]}/{name.removeprefix(f'{group}_')}": value for name, value in numbers.items()}
        self._tell("scalars", step, named)

    def texts(self, step: int, texts: dict[str, str]) -> None:
        self._tell("texts", step, texts)

    def pictures(self, step: int, pictures: dict[str, np.ndarray]) -> None:
        self._tell("pictures", step, pictures)

    def files(self, paths: Sequence[Path]) -> None:
        self._tell("files", [path for path in paths if path.exists()])

    def are_open(self) -> bool:
        """Returns whether any tracker receives records."""
        return bool(self._open)

    def __enter__(self) -> "Trackers":
        return self

    def __exit__(self, *_: object) -> None:
        self._tell("close")
        self._open.clear()

    def _tell(self, method: str, *arguments: Any) -> None:
        for name, tracker in [*self._open.items()]:
            try:
                getattr(tracker, method)(*arguments)
            except Exception as error:
                del self._open[name]
                with suppress(Exception):
                    tracker.close()
                self._warn(name, error)

    def _warn(self, name: str, error: Exception) -> None:
        why = one_line(" ".join(str(error).split()) or type(error).__name__)
        log.warning("warning: tracker %s failed and gets no more records: %s", name, why)
