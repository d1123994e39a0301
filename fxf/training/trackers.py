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
        modules: dict[str, Any] = sys.modules  # where None hides a package
        hidden = modules.setdefault("torch", None) is None
        from tensorboardX import summary
        from tensorboardX.proto.event_pb2 import Event, SessionLog
        from tensorboardX.record_writer import RecordWriter

        if hidden:
            del modules["torch"]
        self._summary, self._event = summary, Event
        place = folder / "tensorboard"
        place.mkdir(exist_ok=True)
        self._writer = RecordWriter(str(place / f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}"))
        start = SessionLog(status=SessionLog.START)
        for event in (Event(file_version="brain.Event:2"), Event(step=resumed_at + 1, session_log=start)):
            self._writer.write(event.SerializeToString())
        self._writer.flush()

    def config(self, config: dict[str, Any]) -> None:
        self.texts(0, {"config": f"```json\n{json.dumps(config, indent=1)}\n```"})

    def scalars(self, step: int, values: dict[str, float]) -> None:
        self._write(step, [self._summary.scalar(tag, value) for tag, value in values.items()])

    def texts(self, step: int, texts: dict[str, str]) -> None:
        self._write(step, [self._summary.text(tag, text) for tag, text in texts.items()])

    def files(self, paths: Sequence[Path]) -> None:
        """They are beside the event files already."""

    def _write(self, step: int, summaries: list[Any]) -> None:
        for summary in summaries:
            event = self._event(wall_time=time.time(), step=step, summary=summary)
            self._writer.write(event.SerializeToString())
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


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
        """Makes the trackers. Raises a UserError if one lacks its package."""
        for name, make in makers.items():
            with self._giving_up(name):
                self._open[name] = make(folder, resumed_at)

    def config(self, config: dict[str, Any]) -> None:
        self._tell("config", config)

    def scalars(self, step: int, group: str, values: Mapping[str, Any]) -> None:
        """Tells the figures of a group: train, validation or test. What is no number is left out."""
        numbers = {name: float(value) for name, value in values.items() if isinstance(value, int | float)}
        if self._on_record and group != "test":
            self._on_record(step, numbers)
        groups = GROUPS if group == "train" else {}
        tags = {name: f"{groups.get(name, group)}/{name.removeprefix(f'{group}_')}" for name in numbers}
        self._tell("scalars", step, {tags[name]: value for name, value in numbers.items()})

    def texts(self, step: int, texts: dict[str, str]) -> None:
        self._tell("texts", step, texts)

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
            with self._giving_up(name):
                getattr(tracker, method)(*arguments)

    @contextmanager
    def _giving_up(self, name: str) -> Iterator[None]:
        """Turns an exception of a tracker, which then gets no more records, into a warning."""
        try:
            yield
        except UserError:
            raise
        except Exception as error:
            if tracker := self._open.pop(name, None):
                with suppress(Exception):
                    tracker.close()
            why = one_line(" ".join(str(error).split()) or type(error).__name__)
            log.warning("warning: tracker %s failed and gets no more records: %s", name, why)
