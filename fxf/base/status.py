"""Status lines: the stages of a process, their progress and the time, drawn by rich on a terminal.

Elsewhere, as in the log of a job, only the lines of `say` and `tell` appear.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_progress: Any = None  # of rich, while a stage is open on a terminal
_tasks: list[Any] = []  # rich's task of each open stage; without a terminal each is None


@contextmanager
def stage(name: str, total: int = 0, done: int = 0) -> Iterator[Callable[[int], None]]:
    """Shows the work inside as a stage, below the stages around it; yields a function that sets how much is done.

    Args:
      total: how much there is to do, such as a number of steps; 0 if it is not known.
      done: how much of it is done already.
    """
    if not _tasks:
        _begin()
    task = _progress and _progress.add_task(name, total=total or None, completed=done, text="")
    _tasks.append(task)
    try:
        yield lambda done: _progress and _progress.update(task, completed=done)
    finally:
        _tasks.remove(task)
        if _progress:
            _progress.remove_task(task)
        if not _tasks:
            end()


def _begin() -> None:
    """Starts to draw, if stderr is a terminal. What is printed to stdout passes through rich only on a terminal."""
    global _progress
    if sys.stderr is None or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        return
    from rich import progress  # imported here, because a job without a terminal needs none
    from rich.console import Console

    name, text = (progress.TextColumn(f"{{task.{field}}}", markup=False) for field in ("description", "fields[text]"))
    columns = (progress.SpinnerColumn(), name, progress.BarColumn(20), progress.TaskProgressColumn())
    times = (progress.TimeElapsedColumn(), progress.TimeRemainingColumn())
    stdout, console = sys.stdout is not None and sys.stdout.isatty(), Console(file=sys.stderr)
    _progress = progress.Progress(
        *columns, *times, text, console=console, transient=True, refresh_per_second=4, redirect_stdout=stdout
    )
    _progress.start()


def say(text: str) -> None:
    """Writes a line to stderr, above the stages."""
    if _progress:
        _progress.console.print(text, markup=False, highlight=False, soft_wrap=True)
    else:
        print(text, file=sys.stderr, flush=True)


def tell(text: str, in_a_log: str) -> None:
    """Shows a text in the innermost stage, or writes a line where stderr is no terminal."""
    if _progress and _tasks:
        _progress.update(_tasks[-1], text=text)
    else:
        say(in_a_log)


def end() -> None:
    """Erases what is drawn, and draws no more."""
    global _progress
    shown, _progress = _progress, None
    if shown:
        shown.stop()
