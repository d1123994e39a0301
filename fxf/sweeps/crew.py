"""The crew of a sweep or a trial: it trains runs one after another, here or in processes that share the cores."""

import math
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, TextIO

from fxf.base import signals, status
from fxf.base.devices import start_jax
from fxf.base.errors import DivergedError, Interrupted, UserError, shortened, why_not_ours
from fxf.runs import guests, run
from fxf.runs.experiment import Kept

LOG = "log.txt"
POLL_SECONDS = 0.1
MOST_KEPT = 32  # experiments whose programs a process keeps: a run has those of training and those of its page


class Job(NamedTuple):
    """A run to train: its config, nested with every key, its folder, and what config.json says of its origin."""

    config: dict[str, Any]
    folder: Path
    origin: dict[str, Any]


class Crew:
    """Trains runs in this process, or in several that share the cores. Each compiles its programs once.

    A run has the same bits as alone, because it calls the same programs with the same arguments. As a context it ends
    its processes. A script that uses several must not train where it is imported.
    """

    def __init__(self, workers: int, minutes: float = math.inf) -> None:
        """Makes a crew that begins no run after these minutes."""
        self._n, self._deadline = workers, time.monotonic() + 60 * minutes
        self._kept: Kept = {}
        self._workers: dict[Connection, Any] = {}  # the process at the other end of each pipe

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._stop()
        if kind is not Interrupted:
            signals.release()

    def train(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, str]]:
        """Trains the runs; yields each that has ended, with why it failed otherwise than by diverging, or nothing.

        Raises:
          Interrupted: a signal asked to stop; the steps of the runs are saved.
        """
        if self._n > 1 and len(jobs) > 1:
            yield from self._side_by_side(list(reversed(jobs)))
            return
        for job in jobs:
            if time.monotonic() > self._deadline:
                return
            status.end()  # what is drawn would go to the log of the run
            yield job, train(job, {}, self._kept)

    def _side_by_side(self, waiting: list[Job]) -> Iterator[tuple[Job, str]]:
        busy: dict[Any, Job] = {}
        signals.hold()
        while True:
            self._start()
            for pipe in self._workers:
                if waiting and pipe not in busy and time.monotonic() < self._deadline:
                    job = busy[pipe] = waiting.pop()
                    pipe.send((job, guests.record(job.config)))
            if not busy:
                break
            ready: list[Any] = wait(list(busy), POLL_SECONDS)
            if signals.asked():
                self._stop()
                raise Interrupted("stopped; the runs have saved their step, and the same command goes on")
            for pipe in ready:
                job = busy.pop(pipe)
                yield job, self._reply(pipe, job)
        signals.release()

    def _start(self) -> None:
        """Starts the processes that are missing."""
        context, blocked = multiprocessing.get_context("spawn"), signal.pthread_sigmask(signal.SIG_BLOCK, [])
        resource_tracker.ensure_running()
        # It has unblocked some. The processes must have them blocked before their imports start threads.
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for i in range(len(self._workers), self._n):
            ours, theirs = context.Pipe()
            worker = context.Process(target=_work, args=(theirs, i, self._n), daemon=True)
            worker.start()
            theirs.close()
            self._workers[ours] = worker

    def _reply(self, pipe: Connection, job: Job) -> str:
        try:
            return pipe.recv()
        except EOFError:
            worker = self._workers.pop(pipe)
            worker.join()
            why = f"its process ended with code {worker.exitcode}"
            with open_log(job.folder) as log:
                log.write(f"error: {why}\n")
            return why

    def _stop(self) -> None:
        """Asks the processes to save and end, and waits for them."""
        for worker in self._workers.values():
            worker.terminate()
        for pipe, worker in self._workers.items():
            worker.join()
            pipe.close()
        self._workers = {}


def _work(pipe: Connection, number: int, n: int) -> None:
    """Trains the jobs that come, with an nth of the cores' threads, until the other end of the pipe has gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    import fxf.base.listen  # noqa: F401  Signals end it after a save.

    start_jax()
    import jax

    if hasattr(os, "sched_setaffinity"):  # Linux: JAX starts as many threads as it finds cores
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[number % len(cores) :: n])
        jax.devices()
        for thread in os.listdir("/proc/self/task"):  # which may run on any core
            os.sched_setaffinity(int(thread), cores)
    kept: Kept = {}
    try:
        while True:
            job, brought = pipe.recv()
            pipe.send(train(job, brought, kept))
    except (EOFError, Interrupted):
        return


def train(job: Job, brought: Mapping[str, Any], kept: Kept) -> str:
    """Trains a run, and returns why it failed otherwise than by diverging, or nothing.

    Its log.txt gets what it prints and in the end its result or its error.

    Args:
      brought: the files that the config names, if this process has not executed them.
      kept: the programs of earlier runs of this process.

    Raises:
      Interrupted: a signal asked to stop; the step is saved.
    """
    from fxf.runs import inside  # an import that the first step need not wait for

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
                line = f"{type(error).__name__}: {error}"
            print(f"error: {shortened(line)}", file=sys.stderr)
            signals.release()  # its steps need not be saved
            return "" if isinstance(error, DivergedError) else line
        print("  ".join(f"{name} {value}" for name, value in result.items()))
    return ""


@contextmanager
def _logged(folder: Path) -> Iterator[None]:
    """Sends all that the process prints inside, also what C++ prints, to the folder's log."""
    with open_log(folder) as log:
        before = os.dup(1), os.dup(2)
        try:
            _print_to(log.fileno(), log.fileno())
            yield
        finally:
            _print_to(*before)
            for descriptor in before:
                os.close(descriptor)


def _print_to(stdout: int, stderr: int) -> None:
    """Makes the standard streams write to these descriptors."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)


def open_log(folder: Path) -> TextIO:
    """Returns the folder's log, open to append to it."""
    folder.mkdir(parents=True, exist_ok=True)
    return (folder / LOG).open("a")


def last_line(folder: Path) -> str:
    """Returns `LOG: its last line` of the log in a folder."""
    path = folder / LOG
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n") if path.is_file() else []
    return f"{path}: {next((line.strip() for line in reversed(lines) if line.strip()), 'empty')}"
