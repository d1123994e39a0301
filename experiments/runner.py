"""What benchmarks, studies, claims, seeds and the race share: jobs in processes, kept results, and tables in pages."""

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
    """Work of a process: a name, and a function of a module that returns figures, as JSON has them."""

    name: str
    do: Callable[..., dict[str, Any]]
    arguments: tuple[Any, ...] = ()

    def identity(self) -> str:
        """Returns a digest of what the figures depend on: the code of fxf, the configs, and the function's file."""
        configs = [path for path in files_below(ROOT / "configs") if path.suffix == ".py"]
        files = map(file_digest, sorted([*configs, Path(inspect.getfile(self.do))]))
        return digest("\n".join([self.name, code_digest(), *files]).encode())


class Done(NamedTuple):
    """The figures of a job, or in a line what went wrong."""

    name: str
    figures: dict[str, Any]
    error: str = ""


def finished(jobs: Iterable[Job], kept: Path, workers: int = 1) -> Iterator[Done]:
    """Yields each job as it ends; each has a process of its own, and keeps its figures in `kept`/NAME.json.

    What the same code has done is not done again. What a job prints is not shown.
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
            except Exception as error:  # one job must not end the others
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
    """Returns what a process that runs in the checkout prints.

    Raises:
      UserError: it failed; the last line of its errors says why.
    """
    options = {"cwd": ROOT, "env": {**os.environ, **(environment or {})}, "text": True, **options}
    done = subprocess.run(words, capture_output=True, **options)
    if done.returncode:
        raise UserError(f"{' '.join(words[:4])} …: {(done.stderr.splitlines() or ['no message'])[-1]}")
    return str(done.stdout)


def verb(*words: str) -> list[str]:
    """Returns the command of a verb of fxf."""
    return [sys.executable, "-P", "-m", "fxf", *words]


def made_now() -> dict[str, Any]:
    """Returns code, versions, commit, machine and date."""
    return {**made_by(), "date": time.strftime("%F")}


def keep(folder: Path, rows: Sequence[dict[str, Any]] = ()) -> None:
    """Writes made_by.json, and the rows as table.csv; first what made them, because results count as changes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "made_by.json").write_text(json.dumps(made_now(), indent=1) + "\n")
    if rows:
        (folder / "table.csv").write_text(to_csv(rows))


def filled(page: Path, tables: Mapping[str, str]) -> str:
    """Returns the text of a page with these tables where it has `<!-- table NAME -->` to `<!-- end -->`.

    Raises:
      ValueError: the page has no such place.
    """
    text = page.read_text()
    for name, table in tables.items():
        between = re.compile(rf"(<!-- table {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
        if not between.search(text):
            raise ValueError(f"{page}: no place for the table {name}")
        text = between.sub(lambda found, table=table: f"{found[1]}\n{table}\n{found[2]}", text, count=1)  # type: ignore[misc]
    return text
