"""A run as the commands train it: when it has ended, its page gets what is inside the model, and its trackers files."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax

from fxf.files import is_remote
from fxf.runs.programs import Kept
from fxf.training.trackers import Trackers

FILES = ("config.json", "metrics.jsonl", "result.json", "report.html")  # for trackers


@contextmanager
def completed(config: Mapping[str, Any], workdir: Path, kept: Kept | None = None) -> Iterator[Trackers]:
    """Gives the trackers of a run, which is trained inside, and writes its page when it has ended."""
    with Trackers() as trackers:
        yield trackers
        # An import that the first step need not wait for.
        from fxf.views import inside

        if config["log"]["report"] and jax.process_count() == 1 and not inside.is_of_the_result(workdir):
            print(inside.write(workdir, kept=kept), file=sys.stderr)
        if trackers.are_open() and not is_remote(workdir):
            trackers.files([workdir / name for name in FILES])
