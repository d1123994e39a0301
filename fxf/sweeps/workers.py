"""Workers that start a process for each run or group of runs, several at a time."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

from fxf.errors import Interrupted, UserError
from fxf.machine import signals
from fxf.machine.status import stage
from fxf.runs import run_folder

LOG = "log.txt"
POLL_SECONDS = 0.05
INTERRUPTED = "stopped; its points have saved their step, and the same command resumes from there"
# Processes on one accelerator must allocate its memory on demand; by default each takes most of it at its start.
ALLOCATE_ON_DEMAND = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


class Job(NamedTuple):
    """A process of one or several points.

    Attributes:
      command: the command that starts it.
      folder: the folder of its log.txt, to which its output is appended.
      points: the run folders that it writes; by default only `folder`.
    """

    command: list[str]
    folder: Path
    points: tuple[Path, ...] = ()


def this_fxf() -> list[str]:
    """Returns the start of a command that runs the fxf of this process, in the same working directory.

    Python finds a package in the working directory first. With -P it does not look there.
    """
    home = str(Path(__file__).parents[2])
    return [sys.executable, *([] if home in sys.path[:1] else ["-P"]), "-m", "fxf"]


def run_all(jobs: Sequence[Job], workers: int) -> dict[Path, str]:
    """Runs the jobs, `workers` at a time, prints how each point ends, and returns the failures by run folder.

    A failure does not affect the other jobs.

    Raises:
      Interrupted: a signal came; the processes were terminated and have ended.
    """
    waiting, running = list(reversed(jobs)), list[tuple[Job, subprocess.Popen]]()
    failures: dict[Path, str] = {}
    n_ended, n_points = 0, sum(len(job.points) or 1 for job in jobs)
    environment = {**ALLOCATE_ON_DEMAND, **os.environ} if workers > 1 else dict(os.environ)

    def stop() -> None:
        for _, process in running:
            process.terminate()

    signals.hold()
    try:
        with stage("training the points", n_points) as progress:
            while waiting or running:
                if signals.asked():
                    raise Interrupted(INTERRUPTED)
                while waiting and len(running) < workers:
                    job = waiting.pop()
                    running.append((job, _start(job, environment)))
                time.sleep(POLL_SECONDS)
                for job, process in [entry for entry in running if entry[1].poll() is not None]:
                    running.remove((job, process))
                    failed = _failures(job, process.returncode)
                    failures |= failed
                    for folder in job.points or (job.folder,):
                        n_ended += 1
                        progress.advance()
                        print(f"{n_ended}/{n_points}  {folder.name}  {failed.get(folder, 'finished')}", flush=True)
    finally:
        stop()
        for _, process in running:
            process.wait()
    signals.release()
    return failures


def _failures(job: Job, code: int) -> dict[Path, str]:
    """Returns how the process of a job failed, for each of its points without a result."""
    if not (failure := _failure(code)):
        return {}
    if not job.points:
        return {job.folder: failure}
    lost = [folder for folder in job.points if run_folder.read_result(folder) is None]
    return {folder: failure if (folder / LOG).exists() else f"{failure}; {last_line(job.folder)}" for folder in lost}


def last_line(folder: Path) -> str:
    """Returns `LOG: its last line` of the log in a folder."""
    path = folder / LOG
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n") if path.is_file() else []
    return f"{path}: {next((line.strip() for line in reversed(lines) if line.strip()), 'empty')}"


def _start(job: Job, environment: dict[str, str]) -> subprocess.Popen:
    """Starts the command in its own session, so Ctrl-C reaches it only through `run_all`."""
    with open_log(job.folder) as log:
        return subprocess.Popen(
            job.command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )


def open_log(folder: Path) -> TextIO:
    """Returns the folder's log, open to append to it. Raises a UserError if it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / LOG).open("a")
    except OSError as error:
        raise UserError(f"cannot write its {LOG}: {error.filename}: {error.strerror}") from None


def _failure(code: int) -> str:
    if code >= 0:
        return f"exit code {code}" if code else ""
    return f"killed by {signal.Signals(-code).name}"
