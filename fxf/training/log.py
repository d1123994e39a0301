"""The log of a training run: metrics.jsonl, trackers, page and printed lines; `_logged` of loop.py makes records."""

import dataclasses
import logging
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import jax

from fxf.base import status
from fxf.base.compiled import seconds_of_compiling
from fxf.base.config import key
from fxf.base.errors import Interrupted, UserError, line_of, one_line
from fxf.base.files import files_below, is_remote, to_json, write_atomically
from fxf.reports import report
from fxf.reports.run_files import ENDED, ERROR, RECORDS, SAMPLES, lines
from fxf.training import processes
from fxf.training.trackers import Trackers, require_trackers


@dataclasses.dataclass(frozen=True)
class LogConfig:
    """The `log` section."""

    every: int = key(100, "steps between metric records; validations and checkpoint.every add some", minimum=1)
    tensorboard: bool = key(True, "whether to write TensorBoard event files")
    trackers: str = key("", "comma-separated; each one of fxf.training.trackers.TRACKERS")
    report: bool = key(True, "whether to write report.html, the page of the run")
    hang: float = key(30.0, "warns if steps take this many times the usual, at least a minute; 0: never", minimum=0)

    def __post_init__(self) -> None:
        require_trackers(self.trackers)


log = logging.getLogger(__name__)

PROFILE = "profile"
SHOWN = {"compile": "compiling", "evaluate": "evaluating"}  # the stages that some purposes show


class Clock:
    """Seconds spent by purpose, summed over this process and the earlier ones that it resumes."""

    def __init__(self, started: float | None = None) -> None:
        self._started = time.perf_counter() if started is None else started
        self._before: dict[str, float] = {}
        self._seconds: dict[str, float] = {"train": 0.0, "compile": 0.0, "evaluate": 0.0, "data": 0.0}
        self._purpose, self._counted = "", (self._started, 0.0)  # up to when time and compiling are counted

    def add_earlier(self, seconds: dict[str, float]) -> None:
        """Adds the seconds of earlier processes of the same run."""
        self._before = seconds

    @contextmanager
    def measure(self, purpose: str) -> Iterator[None]:
        """Counts the time inside for `purpose`, without that of nested calls; compiling counts as `compile`."""
        outer = self._purpose
        self._count_up_to_now(purpose)
        with status.stage(SHOWN[purpose]) if purpose in SHOWN else nullcontext():
            yield
        self._count_up_to_now(outer)

    def _count_up_to_now(self, next_purpose: str) -> None:
        counted_at, counted_compiling = self._counted
        now, all_compiling = time.perf_counter(), seconds_of_compiling()
        if self._purpose:
            compiling = all_compiling - counted_compiling
            self._seconds["compile"] += compiling
            self._seconds[self._purpose] += now - counted_at - compiling
        self._purpose, self._counted = next_purpose, (now, all_compiling)

    def wait(self, seconds: float) -> None:
        """Counts seconds of `train` in which steps waited for `data`."""
        self._seconds["data"] += seconds

    def seconds(self) -> dict[str, float]:
        """Returns the seconds by purpose, and all seconds since the start as `wall`."""
        now = {**self._seconds, "wall": time.perf_counter() - self._started}
        return {name: value + self._before.get(name, 0.0) for name, value in now.items()}


def goodput(seconds: dict[str, float]) -> float:
    """Returns the share of all seconds spent on steps whose result was kept.

    The rest is starting, compiling, waiting for data, evaluating, saving, and steps lost when a process ended.
    """
    return max(seconds["train"] - seconds["data"], 0.0) / seconds["wall"]


def last_wall_seconds(folder: Path) -> float:
    """Returns the newest `wall_seconds` of the records in a run folder, also of steps that were lost; 0 if none has."""
    return max((record.get("wall_seconds", 0.0) for record in lines(folder / RECORDS)), default=0.0)


class MetricsLog(AbstractContextManager["MetricsLog"]):
    """A log that appends records to `metrics.jsonl`, tells the trackers, writes the run's page, and shows them.

    As a context it also notes the error that ends it, for the page. In a bucket files cannot be appended to, so
    `publish` copies them there from a temporary folder. Processes other than the first one write into a
    temporary folder that is thrown away, and show nothing.
    """

    def __init__(self, directory: Path, steps: int, resumed_at: int, config: LogConfig, trackers: Trackers) -> None:
        self._steps, self._place, self._trackers = steps, directory, trackers
        self._is_first = processes.is_first()
        self._temporary = tempfile.TemporaryDirectory() if is_remote(directory) or not self._is_first else None
        self._folder = Path(self._temporary.name) if self._temporary else directory
        self._has_page = config.report and self._is_first
        if self._is_first:
            self._go_on(resumed_at)
            names = [*require_trackers(config.trackers), *(["tensorboard"] if config.tensorboard else [])]
            trackers.open(names, self._folder, resumed_at)
        self._file = (self._folder / RECORDS).open("a", encoding="utf-8")

    def _go_on(self, step: int) -> None:
        """Drops records that will come again (after a step, or of the test), and lines that a kill has cut short."""
        (self._place / ENDED).unlink(missing_ok=True)
        for name in (RECORDS, SAMPLES):
            found = lines(self._place / name)
            if found and name == RECORDS and not step:
                text = "warning: %s: has records up to step %d but no checkpoint; it begins again at step 0"
                log.warning(text, self._place, found[-1]["step"])
            if (self._place / name).exists():
                stays = [to_json(row) + "\n" for row in found if row["step"] <= step and row.get("test") is not True]
                write_atomically(self._folder / name, "".join(stays))

    def record(self, step: int, values: dict[str, float], group: str = "train") -> None:
        """Writes one object; the record of step 12 covers the steps up to and including the twelfth.

        Args:
          group: train or validation.
        """
        self._file.write(to_json({"step": step, **values}) + "\n")
        self._file.flush()
        self._trackers.scalars(step, group, values)

    def without_samples(self, step: int, figures: dict[str, Any], test: bool = False) -> dict[str, Any]:
        """Writes the samples among the metrics of a step's validation or of the test; returns all but the lists."""
        if rows := figures.get("samples"):
            with (self._folder / SAMPLES).open("a", encoding="utf-8") as file:
                file.write(to_json({"step": step, "test": test, "rows": rows}) + "\n")
        if test:
            self._trackers.scalars(step, "test", figures)
        return {name: value for name, value in figures.items() if name not in ("samples", "answers")}

    def show(self, step: int, values: dict[str, float]) -> None:
        """Shows a record of training, with the terms, which the loss leaves out."""
        left = timedelta(seconds=round((self._steps - step) / values["steps_per_second"]))
        utilization = f"  MFU {values['mfu']:.1%}" if "mfu" in values else ""
        terms = "".join(f"  {name} {value:.4f}" for name, value in values.items() if name.startswith("term/"))
        text = f"step {step}/{self._steps}  loss {values['loss']:.4f}{terms}  {values['steps_per_second']:.1f} steps/s"
        text += f"  {values['tokens_per_second']:,.0f} tokens/s{utilization}"
        if self._is_first:
            status.tell(text, f"{text}  left {left}")

    def begin(self, stage: str, step: int) -> None:
        """Prints which stage begins, unless a terminal shows it."""
        if self._is_first:
            status.tell("", f"step {step}/{self._steps}  {stage}")

    def print_lines(self, *texts: str) -> None:
        """Prints a line for each text that is not empty."""
        for text in filter(None, texts) if self._is_first else ():
            status.say(one_line(text))

    @contextmanager
    def traced(self) -> Iterator[None]:
        """Writes a trace of what runs inside, for TensorBoard and Perfetto, and prints how to open it."""
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0  # tracing Python would slow down the host
        with jax.profiler.trace(self._folder / PROFILE, profiler_options=options):
            yield
        where = self._place / PROFILE
        shown = f"tensorboard --logdir={where} shows it (with xprof installed)"
        self.print_lines(f"{where}: a trace; {shown}, and ui.perfetto.dev opens its trace.json.gz")

    def publish(self) -> None:
        """Copies the files into the run folder if it is in a bucket."""
        for path in files_below(self._folder) if is_remote(self._place) and self._is_first else ():
            copy = self._place / path.relative_to(self._folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # The first error is the one to show, so errors of writing after it are suppressed.
        with nullcontext() if error is None else suppress(OSError, UserError):
            if error is not None and self._is_first:
                why = one_line(line_of(error))
                is_stop = isinstance(error, Interrupted | KeyboardInterrupt)  # Ctrl-C of a script that does not listen
                write_atomically(self._place / ENDED, f"{'' if is_stop else ERROR}{why}\n")
            self.close()
            if self._has_page:
                report.write(self._place)

    def close(self) -> None:
        """Ends the file, and copies it into a bucket."""
        self._file.close()
        self.publish()
        if self._temporary:
            self._temporary.cleanup()
