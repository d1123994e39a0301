"""The crew of a sweep or a trial: trains runs one after another in this process, or in several that share the cores."""

import json
import math
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from fxf.base import signals, status
from fxf.base.config import differences
from fxf.base.errors import DivergedError, Interrupted, UserError, line_of, shortened, why_not_ours
from fxf.base.work import n_cores
from fxf.reports.run_files import DIVERGED, is_run, read
from fxf.runs import configs, guests, inside, run
from fxf.runs.experiment import ProgramCache

LOG = "log.txt"
POLL_SECONDS = 0.1
# Held while a run's log receives the output of the process. With trials in two threads, one thread would otherwise
# restore the other's log in place of the terminal.
ONE_AT_A_TIME = threading.Lock()
# Experiments whose compiled programs a process keeps. On a CPU, those of a run and its page may take 5,000 memory
# mappings. Linux allows a process 65,530; beyond that XLA aborts.
MOST_KEPT = 8


class Job(NamedTuple):
    """A run to train: its nested config with every key, its folder, and its config's origin, as in config.json."""

    config: dict[str, Any]
    folder: Path
    origin: dict[str, Any]

    def ended(self) -> dict[str, float | None] | None:
        """Returns the run's metrics if it has ended, {} if it diverged, or else None.

        Raises:
          UserError: the folder holds a run of another config.
        """
        if not is_run(self.folder):
            return None
        saved = read(self.folder)
        if differing := differences(saved.config, self.config):
            raise UserError(f"{self.folder}: holds another run: {differing}; move it away, or use another --workdir")
        if saved.state == DIVERGED:
            return {}
        return saved.figures() if saved.result else None

    def figure(self, name: str) -> float | None:
        """Returns a metric of the ended run; None if the run diverged or the metric is not a number.

        Raises:
          UserError: the result has no such metric.
        """
        figures = self.ended()
        if figures and name not in figures:
            raise UserError(f"{self.folder}: no {name} in its result (there are {', '.join(figures)})")
        return figures.get(name) if figures else None


class Crew:
    """Trains runs in this process, or in several that share the cores. Each process compiles a program once.

    In this process a run gives the same bits as alone, because it calls the same programs with the same arguments.
    Several processes have fewer threads each, and on a CPU the order of some sums depends on the number of threads. As
    a context manager, the crew ends its processes on exit.
    """

    def __init__(self, workers: int, minutes: float = math.inf) -> None:
        """Makes a crew that starts no run after `minutes`."""
        self._n, self._deadline = workers, time.monotonic() + 60 * minutes
        self._kept: ProgramCache = {}
        self._files: dict[str, Any] = {}
        self._workers: list[subprocess.Popen[str]] = []

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, *error: Any) -> None:
        self._stop()
        if error[0] is not Interrupted:
            signals.release()

    def train(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, str]]:
        """Trains the runs. Yields each as it ends, with its error, or "" if it finished or diverged.

        Raises:
          UserError: a file that the configs name has changed since the first run began.
          Interrupted: a signal asked to stop; each run has saved its step.
        """
        if self._n > 1 and jobs:  # even for one job: the workers hold the accelerator
            yield from self._side_by_side(list(reversed(jobs)))
            return
        for job in jobs:
            if time.monotonic() > self._deadline:
                return
            self._named(job)
            status.end()  # else the progress line would be drawn into the log of the run
            yield job, train(job, {}, self._kept)

    def train_all(self, jobs: Sequence[Job]) -> bool:
        """Trains the runs that have not ended. Returns whether all ended before the deadline.

        Raises:
          UserError: a run failed, not by diverging; the message names its log, which has the traceback.
          Interrupted: as `train`.
        """
        left = [job for job in jobs if job.ended() is None]
        with status.stage("training runs", len(left)) as progress:
            for number, (job, error) in enumerate(self.train(left), 1):
                if error:
                    raise UserError(f"{job.folder / LOG}: {error.removeprefix(f'{job.folder}: ')}")
                progress(number)
        return all(job.ended() is not None for job in left)

    def _named(self, job: Job) -> dict[str, Any]:
        """Returns the record of the files that a run's config names. Raises a UserError if one changed between runs."""
        configs.load_file(job.origin)
        files = guests.record(job.config)
        for guest in files.values():
            if changed := differences(self._files.setdefault(guest["path"], guest), guest):
                raise UserError(f"{guest['path']}: changed since the first run began: {changed}; put it back")
        return files

    def _side_by_side(self, waiting: list[Job]) -> Iterator[tuple[Job, str]]:
        busy: dict[Any, tuple[subprocess.Popen[str], Job]] = {}  # by the stdout that the worker will answer on
        if any(worker.poll() is not None for worker in self._workers):  # killed while it was idle
            self._stop()
        signals.hold()
        while True:
            n = min(self._n, len(waiting) + len(busy))
            self._workers += [_worker(self._n) for _ in range(len(self._workers), n)]
            for worker in self._workers:
                if waiting and worker.stdout not in busy and time.monotonic() < self._deadline:
                    job = waiting.pop()
                    busy[worker.stdout] = worker, job
                    message = job.config, str(job.folder), job.origin, self._named(job)
                    print(json.dumps(message), file=worker.stdin, flush=True)
            if not busy:
                break
            ready = wait(list(busy), POLL_SECONDS)
            if signals.asked():
                self._stop()
                raise Interrupted("stopped; the runs have saved their steps, and the same command resumes them")
            for pipe in ready:
                worker, job = busy.pop(pipe)
                yield job, self._answer(worker, job)
        signals.release()

    def _answer(self, worker: subprocess.Popen[str], job: Job) -> str:
        """Returns the error of a run, "" for none. `_side_by_side` replaces a process that died."""
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
    """Starts one of n processes, with this one's module path, and threads for 1/n of the cores or PJRT_NPROC."""
    command, pipe = [sys.executable, "-P", "-m", "fxf.sweeps.worker"], subprocess.PIPE
    # On a CPU, JAX starts PJRT_NPROC threads; by default one for each core.
    env = {"PJRT_NPROC": str(-(-n_cores() // n)), **os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)


def train(job: Job, brought: Mapping[str, Any], kept: ProgramCache) -> str:
    """Trains a run. Returns its error, or "" if it finished or diverged.

    Its output goes to its log.txt, followed by its result or error.

    Args:
      brought: the files that the config names, if this process has not executed them.
      kept: the compiled programs of this process's earlier runs; gets those of this run.

    Raises:
      Interrupted: a signal asked to stop; the run has saved its step.
    """
    while len(kept) > MOST_KEPT:
        del kept[next(iter(kept))]
    with ONE_AT_A_TIME, _logged(job.folder):
        try:
            guests.restore(job.folder, brought)
            result = run.train(job.config, job.folder, job.origin, kept=kept)
            inside.complete(job.config, job.folder, kept)
        except Interrupted:
            raise
        except Exception as error:
            if not isinstance(error, UserError) and not why_not_ours(error):
                traceback.print_exc()
            line = line_of(error)
            print(f"error: {shortened(line)}", file=sys.stderr)
            signals.release()  # a failed run has no step to save
            return "" if isinstance(error, DivergedError) else line
        print("  ".join(f"{name} {value}" for name, value in result.items()))
    return ""


@contextmanager
def _logged(folder: Path) -> Iterator[None]:
    """Redirects the output of the process, that of C++ too, to the folder's log."""
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
    with suppress(OSError):  # a full disk must not prevent the redirection
        sys.stdout.flush()
        sys.stderr.flush()
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)


@contextmanager
def open_log(folder: Path) -> Iterator[TextIO]:
    """Opens the folder's log for appending. Raises a UserError if it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / LOG).open("a") as log:
            yield log
    except OSError as error:  # names no file if a write failed, as on a full disk
        raise UserError(f"{folder / LOG}: {error.strerror or error}") from error


def last_line(folder: Path) -> str:
    """Returns the path of a folder's log and the log's last line."""
    path = folder / LOG
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n") if path.is_file() else []
    return f"{path}: {next((line.strip() for line in reversed(lines) if line.strip()), 'empty')}"
