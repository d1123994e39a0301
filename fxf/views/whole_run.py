"""A run as the commands train it: when it has ended, its page gets what is inside the model, and its trackers files."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from fxf.files import is_remote
from fxf.runs import run
from fxf.runs.programs import Kept
from fxf.training.log import Clock
from fxf.training.trackers import Trackers

FILES = ("config.json", "metrics.jsonl", "result.json", "report.html")  # for trackers


def train(
    config: Mapping[str, Any],
    workdir: Path,
    clock: Clock,
    origin: dict[str, Any],
    profile: bool = False,
    kept: Kept | None = None,
) -> dict[str, Any]:
    """Trains a run, or resumes it, and returns its result. Arguments and errors are those of `fxf.runs.run.train`."""
    with Trackers() as trackers:
        result = run.train(config, workdir, clock, origin, profile, kept, trackers)
        # Imports that the first step need not wait for.
        from fxf.reports.pictures import pictures
        from fxf.views import inside

        if config["log"]["report"] and jax.process_count() == 1 and not inside.is_of_the_result(workdir):
            print(inside.write(workdir, kept=kept), file=sys.stderr)
        if trackers.are_open() and not is_remote(workdir):
            trackers.pictures(result["steps"], pictures(workdir))
            trackers.files([workdir / name for name in FILES])
    return result
