"""Trackers: where the records of a run go besides its own files, such as TensorBoard."""

import json
import logging
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from fxf.base.config import Choices, one_of
from fxf.base.errors import UserError, one_line

log = logging.getLogger(__name__)

# Groups of metrics of training; group and name form a tag, such as speed/steps_per_second.
GROUPS = {
    **dict.fromkeys(("steps_per_second", "tokens_per_second", "data_seconds_per_step", "mfu", "goodput"), "speed"),
    **dict.fromkeys(("device_bytes", "device_peak_bytes"), "memory"),
}

OnRecord = Callable[[int, dict[str, float]], None]


class TensorBoard:
    """Event files of tensorboardX; a resumed run replaces what was recorded after the step from which it resumes.

    The RecordWriter has no thread; that of the SummaryWriter waits forever when the disk is full.
    """

    def __init__(self, folder: Path, resumed_at: int) -> None:
        # Imported here because it takes a tenth of a second; an installed PyTorch, which it would import, a second.
        modules: dict[str, Any] = sys.modules  # None hides a package
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
        self._write(file_version="brain.Event:2")
        self._write(step=resumed_at + 1, session_log=SessionLog(status=SessionLog.START))

    def config(self, config: dict[str, Any]) -> None:
        """Receives every key of every section, nested."""
        self._write(step=0, summary=self._summary.text("config", f"```json\n{json.dumps(config, indent=1)}\n```"))

    def scalars(self, step: int, values: dict[str, float]) -> None:
        """Receives metrics by tag, such as train/loss."""
        for tag, value in values.items():
            self._write(step=step, summary=self._summary.scalar(tag, value))
        self._writer.flush()  # it waits for the disk, so once for a record

    def _write(self, **fields: Any) -> None:
        self._writer.write(self._event(wall_time=time.time(), **fields).SerializeToString())

    def close(self) -> None:
        self._writer.close()


# Each is made as `TRACKERS[name](folder, resumed_at)`, and has the methods of TensorBoard.
TRACKERS: Choices[Callable[[Path, int], Any]] = Choices({"tensorboard": TensorBoard})


def require_trackers(names: str) -> list[str]:
    """Returns the names in a comma-separated list. Raises a UserError if one is not of a tracker."""
    return [one_of(name.strip(), TRACKERS, "log.trackers") for name in names.split(",") if names.strip()]


class Trackers(AbstractContextManager["Trackers"]):
    """The trackers of a run. One that raises an exception gets no more records, and a warning says so.

    Args:
      on_record: a function that receives each record of metrics too. Its exceptions go on to the caller.
    """

    def __init__(self, on_record: OnRecord | None = None) -> None:
        self._open: dict[str, Any] = {}
        self._on_record = on_record

    def open(self, names: Iterable[str], folder: Path, resumed_at: int) -> None:
        """Makes the trackers of these names, each once. Raises a UserError if one lacks its package."""
        for name in dict.fromkeys(names):
            with self._giving_up(name):
                self._open[name] = TRACKERS[name](folder, resumed_at)

    def config(self, config: dict[str, Any]) -> None:
        """Passes on every key of every section, nested."""
        self._tell("config", config)

    def scalars(self, step: int, group: str, values: Mapping[str, Any]) -> None:
        """Passes on the numbers among the metrics of a group: train, validation or test."""
        numbers = {name: float(value) for name, value in values.items() if isinstance(value, int | float)}
        if self._on_record and group != "test":
            self._on_record(step, numbers)
        groups = GROUPS if group == "train" else {}
        tags = {name: f"{groups.get(name, group)}/{name.removeprefix(f'{group}_')}" for name in numbers}
        self._tell("scalars", step, {tags[name]: value for name, value in numbers.items()})

    def __exit__(self, *_: object) -> None:
        self._tell("close")

    def _tell(self, method: str, *arguments: Any) -> None:
        for name in [*self._open]:
            with self._giving_up(name):
                getattr(self._open[name], method)(*arguments)

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
