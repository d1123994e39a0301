"""Shared by benchmarks, studies, claims, seeds and the race: jobs in processes, kept results, tables in pages."""

import contextlib
import inspect
import json
import multiprocessing
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

from fxf.base.errors import UserError, one_line
from fxf.base.files import digest, file_digest, files_below, write_atomically
from fxf.reports.tables import to_csv
from fxf.runs.code_version import code_digest, made_by

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "experiments/results"


class Job(NamedTuple):
    """Work for a process: a name, and a module-level function that returns results as JSON has them."""

    name: str
    do: Callable[..., dict[str, Any]]
    arguments: tuple[Any, ...] = ()

    def identity(self) -> str:
        """Returns a digest of what the results depend on: fxf's code, the configs, and the function's file."""
        configs = [path for path in files_below(ROOT / "configs") if path.suffix == ".py"]
        files = map(file_digest, sorted([*configs, Path(inspect.getfile(self.do))]))
        return digest("\n".join([self.name, code_digest(), *files]).encode())


class Done(NamedTuple):
    """The results of a job, or one line that says what went wrong."""

    name: str
    figures: dict[str, Any]
    error: str = ""


def finished(jobs: Iterable[Job], kept: Path, workers: int = 1) -> Iterator[Done]:
    """Yields each job when it ends; each has its own process, and writes its results to `kept`/NAME.json.

    Jobs that the same code has finished before are not repeated. Output of jobs is not shown.
    """
    kept.mkdir(parents=True, exist_ok=True)
    made, waiting = made_now(), []
    for job in jobs:
        path = kept / f"{job.name}.json"
        found = json.loads(path.read_text()) if path.exists() else {}
        if found.get("made_by", {}).get("job") == job.identity():
            yield Done(job.name, found)
        else:
            waiting.append(job)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, max_tasks_per_child=1) as pool:
        running = {pool.submit(_timed, job): job for job in waiting}
        for future in as_completed(running):
            job = running[future]
            try:
                found = {**future.result(), "made_by": {**made, "job": job.identity()}}
            except Exception as error:  # the other jobs go on
                yield Done(job.name, {}, one_line(f"{type(error).__name__}: {error}")[:300])
                continue
            write_atomically(kept / f"{job.name}.json", json.dumps(found, indent=1, ensure_ascii=False) + "\n")
            yield Done(job.name, found)


def _timed(job: Job) -> dict[str, Any]:
    start = time.perf_counter()
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        figures = job.do(*job.arguments)
    return {**figures, "seconds": round(time.perf_counter() - start)}


def command(words: Sequence[str], environment: Mapping[str, str] | None = None, **options: Any) -> str:
    """Runs a command in the checkout, and returns its standard output.

    Raises:
      UserError: it failed; the last line of its errors says why.
    """
    options = {"cwd": ROOT, "env": {**os.environ, **(environment or {})}, "text": True, **options}
    done = subprocess.run(words, capture_output=True, **options)
    if done.returncode:
        raise UserError(f"{' '.join(words[:4])} …: {(done.stderr.splitlines() or ['no message'])[-1]}")
    return str(done.stdout)


def verb(*words: str) -> list[str]:
    """Returns the command line of a verb of fxf."""
    return [sys.executable, "-P", "-m", "fxf", *words]


def several(text: str) -> list[str]:
    """The type of a flag whose value is a comma-separated list of names."""
    return [name.strip() for name in text.split(",")]


def made_now() -> dict[str, Any]:
    """Returns code, versions, commit, machine and date."""
    return {**made_by(), "date": time.strftime("%F")}


def keep(folder: Path, rows: Sequence[dict[str, Any]] = ()) -> None:
    """Writes made_by.json, then the rows as table.csv, which would otherwise count as local changes of the commit."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "made_by.json").write_text(json.dumps(made_now(), indent=1) + "\n")
    if rows:
        (folder / "table.csv").write_text(to_csv(rows))


def filled(page: Path, tables: Mapping[str, str]) -> str:
    """Returns a page's text with each table between its `<!-- table NAME -->` and `<!-- end -->`.

    Raises:
      ValueError: the page has no such markers.
    """
    text = page.read_text()
    for name, table in tables.items():
        between = re.compile(rf"(<!-- table {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
        if not between.search(text):
            raise ValueError(f"{page}: no place for the table {name}")
        text = between.sub(lambda found, table=table: f"{found[1]}\n{table}\n{found[2]}", text, count=1)  # type: ignore[misc]
    return text
