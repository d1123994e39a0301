"""The crew of a sweep or a trial: it trains runs one after another, here or in processes that share the cores."""

import json
import math
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from fxf.base import signals, status
from fxf.base.config import differences
from fxf.base.errors import DivergedError, Interrupted, UserError, shortened, text_of, why_not_ours
from fxf.base.work import n_cores
from fxf.reports.run_files import DIVERGED, is_run, read
from fxf.runs import configs, guests, inside, run
from fxf.runs.experiment import Kept

LOG = "log.txt"
POLL_SECONDS = 0.1
# Experiments whose programs a process keeps: a run has those of training and those of its page, which on a CPU may take
# 5,000 areas of memory. Linux allows a process 65,530; beyond that XLA ends it.
MOST_KEPT = 8


class Job(NamedTuple):
    """A run to train: its config, nested with every key, its folder, and what config.json says of its origin."""

    config: dict[str, Any]
    folder: Path
    origin: dict[str, Any]

    def ended(self) -> dict[str, float | None] | None:
        """Returns the figures of a run that has ended, or None if it has not; of one that diverged none.

        Raises:
          UserError: the folder holds a run of another config.
        """
        if not is_run(self.folder):
            return None
        found = read(self.folder)
        if differing := differences(found.config, self.config):
            raise UserError(f"{self.folder}: holds another run: {differing}; move it away, or use another --workdir")
        if found.state == DIVERGED:
            return {}
        return found.figures() if found.result else None

    def figure(self, name: str) -> float | None:
        """Returns a figure of an ended run; None if the run diverged or the figure is no number.

        Raises:
          UserError: the result has no such figure.
        """
        figures = self.ended()
        if figures and name not in figures:
            raise UserError(f"{self.folder}: no {name} in its result (there are {', '.join(figures)})")
        return figures.get(name) if figures else None


class Crew:
    """Trains runs in this process, or in several that share the cores. Each compiles its programs once.

    A run has the same bits as alone, because it calls the same programs with the same arguments. As a context it ends
    its processes.
    """

    def __init__(self, workers: int, minutes: float = math.inf) -> None:
        """Makes a crew that begins no run after these minutes."""
        self._n, self._deadline = workers, time.monotonic() + 60 * minutes
        self._kept: Kept = {}
        self._files: dict[str, Any] = {}
        self._workers: list[subprocess.Popen[str]] = []

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, *error: Any) -> None:
        self._stop()
        if error[0] is not Interrupted:
            signals.release()

    def train(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, str]]:
        """Trains the runs; yields each that has ended, with why it failed otherwise than by diverging, or nothing.

        Raises:
          UserError: a file that the configs name has changed since the first run began.
          Interrupted: a signal asked to stop; the steps of the runs are saved.
        """
        if self._n > 1 and jobs:  # also one: this process may not use the accelerator
            yield from self._side_by_side(list(reversed(jobs)))
            return
        for job in jobs:
            if time.monotonic() > self._deadline:
                return
            self._named(job)
            status.end()  # what is drawn would go to the log of the run
            yield job, train(job, {}, self._kept)

    def train_all(self, jobs: Sequence[Job]) -> bool:
        """Trains the runs that have not ended, and returns whether all have, in time.

        Raises:
          UserError: a run failed otherwise than by diverging.
          Interrupted: as `train`.
        """
        left = [job for job in jobs if job.ended() is None]
        with status.stage("training runs", len(left)) as progress:
            for number, (job, error) in enumerate(self.train(left), 1):
                if error:
                    raise UserError(error if error.startswith(f"{job.folder}: ") else f"{job.folder}: {error}")
                progress(number)
        return all(job.ended() is not None for job in left)

    def _named(self, job: Job) -> dict[str, Any]:
        """Returns the record of the files that a run's config names, which may not change between runs."""
        configs.load_file(job.origin)
        named = guests.record(job.config)
        for guest in named.values():
            if changed := differences(self._files.setdefault(guest["path"], guest), guest):
                raise UserError(f"{guest['path']}: changed since the first run began: {changed}; put it back")
        return named

    def _side_by_side(self, waiting: list[Job]) -> Iterator[tuple[Job, str]]:
        busy: dict[Any, tuple[subprocess.Popen[str], Job]] = {}  # by the pipe that will have the answer
        signals.hold()
        while True:
            n = min(self._n, len(waiting) + len(busy))
            self._workers += [_worker(self._n) for _ in range(len(self._workers), n)]
            for worker in self._workers:
                if waiting and worker.stdout not in busy and time.monotonic() < self._deadline:
                    job = waiting.pop()
                    busy[worker.stdout] = worker, job
                    told = job.config, str(job.folder), job.origin, self._named(job)
                    print(json.dumps(told), file=worker.stdin, flush=True)
            if not busy:
                break
            ready = wait(list(busy), POLL_SECONDS)
            if signals.asked():
                self._stop()
                raise Interrupted("stopped; the runs have saved their step, and the same command goes on")
            for pipe in ready:
                worker, job = busy.pop(pipe)
                yield job, self._answer(worker, job)
        signals.release()

    def _answer(self, worker: subprocess.Popen[str], job: Job) -> str:
        """Returns why a run failed, or nothing. A process that is gone is replaced at the next chance."""
        assert worker.stdout
        if answer := worker.stdout.readline():
            return json.loads(answer)
        self._workers.remove(worker)
        why = f"its process ended with code {worker.wait()}"
        with open_log(job.folder) as log:
            log.write(f"error: {why}\n")
        return why

    def _stop(self) -> None:
        """Asks the processes to save and end, and waits for them."""
        for worker in self._workers:
            worker.terminate()
        for worker in self._workers:
            worker.communicate()
        self._workers = []


def _worker(n: int) -> "subprocess.Popen[str]":
    """Starts one of n processes. It finds the modules that this one finds, and has threads for an nth of the cores."""
    command, pipe = [sys.executable, "-P", "-m", "fxf.sweeps.worker"], subprocess.PIPE
    # JAX on a CPU starts PJRT_NPROC threads in place of one for each core.
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PJRT_NPROC": str(-(-n_cores() // n))}
    return subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)


def train(job: Job, brought: Mapping[str, Any], kept: Kept) -> str:
    """Trains a run, and returns why it failed otherwise than by diverging, or nothing.

    Its log.txt gets what it prints and in the end its result or its error.

    Args:
      brought: the files that the config names, if this process has not executed them.
      kept: the programs of earlier runs of this process.

    Raises:
      Interrupted: a signal asked to stop; the step is saved.
    """
    while len(kept) > MOST_KEPT:
        del kept[next(iter(kept))]
    with _logged(job.folder):
        try:
            guests.restore(job.folder, brought)
            result = run.train(job.config, job.folder, job.origin, kept=kept)
            inside.complete(job.config, job.folder, kept)
        except Interrupted:
            raise
        except Exception as error:
            line = str(error) if isinstance(error, UserError) else why_not_ours(error)
            if not line:
                traceback.print_exc()
                line = f"{type(error).__name__}: {text_of(error)}"
            print(f"error: {shortened(line)}", file=sys.stderr)
            signals.release()  # its steps need not be saved
            return "" if isinstance(error, DivergedError) else line
        print("  ".join(f"{name} {value}" for name, value in result.items()))
    return ""


@contextmanager
def _logged(folder: Path) -> Iterator[None]:
    """Sends all that the process prints inside, also what C++ prints, to the folder's log."""
    with open_log(folder) as log:
        terminal = os.dup(1), os.dup(2)
        try:
            _print_to(log.fileno(), log.fileno())
            signals.print_to(terminal[1])
            yield
        finally:
            signals.print_to(2)
            _print_to(*terminal)
            os.close(terminal[0])
            os.close(terminal[1])


def _print_to(stdout: int, stderr: int) -> None:
    """Makes the standard streams write to these descriptors."""
    with suppress(OSError):  # of a log on a full disk, which must not keep the streams
        sys.stdout.flush()
        sys.stderr.flush()
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)


@contextmanager
def open_log(folder: Path) -> Iterator[TextIO]:
    """Opens the folder's log to append to it. Raises a UserError if it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / LOG).open("a") as log:
            yield log
    except OSError as error:  # of a write, as to a full disk, it names no file
        raise UserError(f"{folder / LOG}: {error.strerror or error}") from error


def last_line(folder: Path) -> str:
    """Returns `LOG: its last line` of the log in a folder."""
    path = folder / LOG
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n") if path.is_file() else []
    return f"{path}: {next((line.strip() for line in reversed(lines) if line.strip()), 'empty')}"
