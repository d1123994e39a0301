"""The runs of a trial: what an ended one has left, and the processes that train the others, each on its cores."""

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from fxf.config import differences
from fxf.errors import DivergedError, Interrupted, UserError
from fxf.files import read_json
from fxf.machine import signals
from fxf.machine.kept_programs import keep_programs
from fxf.reports.run_files import is_run, read
from fxf.runs import guests
from fxf.runs.programs import Kept
from fxf.sweeps.together import train_logged

DIVERGED, SECONDS = "diverged.json", "wall_seconds"  # of a run that diverged: the seconds that it took
POLL_SECONDS = 0.1


class Job(NamedTuple):
    """A run to train: its config, nested with every key, its folder, and what config.json says of its origin."""

    config: dict[str, Any]
    folder: Path
    origin: dict[str, Any]


def ended(job: Job) -> dict[str, float | None] | None:
    """Returns the figures of a run that has ended, or None if it has not; of one that diverged its seconds alone.

    Raises:
      UserError: the folder holds a run of another config.
    """
    if not is_run(folder := job.folder):
        return None
    run = read(folder)
    if differing := differences(run.config, job.config):
        raise UserError(f"{folder}: holds another run: {differing}; move it away, or use another --workdir")
    if (folder / DIVERGED).exists():
        return read_json(folder / DIVERGED, "the seconds of a run")
    return run.figures() if run.result else None


def figure_of(job: Job, name: str) -> float | None:
    """Returns a figure of an ended run; None if the run diverged or the figure is no number.

    Raises:
      UserError: the result has no such figure.
    """
    figures = ended(job) or {}
    if name not in figures and list(figures) != [SECONDS]:
        raise UserError(f"{job.folder}: no {name} in its result (there are {', '.join(figures)})")
    return figures.get(name)


class Crew:
    """Trains runs in this process, or in several that share the cores. Each compiles its programs once.

    As a context it ends its processes. A script that uses several must not train where it is imported.
    """

    def __init__(self, workers: int, minutes: float, told: Callable[[Job], None]) -> None:
        """Makes a crew that begins no run after these minutes, and calls `told` with each that it has trained."""
        self._n, self._deadline, self._told, self._kept = workers, time.monotonic() + 60 * minutes, told, Kept()
        self._workers: dict[Connection, Any] = {}  # the process at the other end of each pipe

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._stop()

    def train(self, jobs: Sequence[Job]) -> bool:
        """Trains the runs that have not ended; returns whether all have, and not the time.

        Raises:
          UserError: a run failed otherwise than by diverging.
          Interrupted: a signal asked to stop; the steps of the runs are saved.
        """
        waiting = [job for job in jobs if ended(job) is None]
        if self._n > 1 and len(waiting) > 1:
            return self._train_side_by_side(waiting[::-1])
        for job in waiting:
            if time.monotonic() > self._deadline:
                return False
            if error := train_one(job, {}, self._kept):
                raise UserError(error)
            self._told(job)
        return True

    def _train_side_by_side(self, waiting: list[Job]) -> bool:
        busy: dict[Any, Job] = {}
        signals.hold()
        self._start()
        while True:
            for pipe in self._workers:
                if waiting and pipe not in busy and time.monotonic() < self._deadline:
                    job = busy[pipe] = waiting.pop()
                    pipe.send((job, guests.record(job.config)))
            if not busy:
                signals.release()
                return not waiting
            ready: list[Any] = wait(list(busy), POLL_SECONDS)
            if signals.asked():
                self._stop()
                raise Interrupted("stopped; the runs have saved their step, and the same command goes on")
            for pipe in ready:
                job = busy.pop(pipe)
                if error := _reply(pipe, job):
                    self._stop()
                    signals.release()
                    raise UserError(error)
                self._told(job)

    def _start(self) -> None:
        context, blocked = multiprocessing.get_context("spawn"), signal.pthread_sigmask(signal.SIG_BLOCK, [])
        for i in range(self._n if not self._workers else 0):
            ours, theirs = context.Pipe()
            worker = context.Process(target=_work, args=(theirs, i, self._n), daemon=True)
            worker.start()
            theirs.close()
            self._workers[ours] = worker
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)  # of which multiprocessing has unblocked some

    def _stop(self) -> None:
        """Asks the processes to save and end, and waits for them."""
        for worker in self._workers.values():
            worker.terminate()
        for pipe, worker in self._workers.items():
            worker.join()
            pipe.close()
        self._workers = {}


def _reply(pipe: Any, job: Job) -> str:
    try:
        return pipe.recv()
    except EOFError:
        return f"{job.folder}: its process has gone; its log.txt may say why"


def _work(pipe: Connection, number: int, n: int) -> None:
    """Trains the jobs that come, with an nth of the cores' threads, until the other end of the pipe has gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    import fxf.machine.listen  # noqa: F401, I001  Signals end it after a save.
    import jax

    jax.config.update("jax_platforms", "cpu")
    keep_programs(jax.config)
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
            pipe.send(train_one(job, brought, kept))
    except (EOFError, Interrupted):
        return


def train_one(job: Job, brought: Mapping[str, Any], kept: Kept) -> str:
    """Trains a run, and returns what failed otherwise than by diverging.

    Args:
      brought: the files that the config names, if this process has not executed them.

    Raises:
      Interrupted: a signal asked to stop; the step is saved.
    """
    started = time.perf_counter()
    try:
        guests.restore(job.folder, brought)
        train_logged(job.config, job.folder, job.origin, kept)
    except DivergedError:
        signals.release()  # its steps need not be saved
        (job.folder / DIVERGED).write_text(json.dumps({SECONDS: time.perf_counter() - started}))
    except UserError as error:
        return f"{job.folder}: {error}"
    return ""
