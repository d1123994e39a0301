"""Points of a sweep that train one after another in this process, and share its compiled programs."""

import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fxf.errors import Interrupted, UserError, shortened, why_not_ours
from fxf.machine import signals
from fxf.runs import run
from fxf.runs.programs import Kept
from fxf.sweeps.points import Point
from fxf.sweeps.workers import open_log
from fxf.training.log import Clock
from fxf.views import whole_run


def train_together(points: Sequence[Point], workdir: Path, origin_of: Callable[[Point], dict[str, Any]]) -> list[str]:
    """Trains the points, each into its folder in `workdir`, and returns the names of those that failed.

    A run is the same as in a process of its own, to the last bit: it calls the same programs with the same arguments.
    Its log.txt has what it prints. If a point fails, the others go on.

    Args:
      origin_of: returns what config.json says of a point's origin.

    Raises:
      Interrupted: a signal asked the process to stop; the step of the point that was training is saved.
    """
    kept: Kept = {}
    failed = []
    for point in points:
        try:
            train_logged(point.config, workdir / point.name, origin_of(point), kept)
        except UserError as error:
            print(f"{point.name}: {error}", file=sys.stderr)
            failed.append(point.name)
            signals.release()  # the steps of a failed run need not be saved
    return failed


def train_logged(config: Mapping[str, Any], folder: Path, origin: dict[str, Any], kept: Kept) -> dict[str, Any]:
    """Trains a run, whose log.txt gets what it prints and in the end its result or its error, and returns the result.

    Args:
      kept: the programs of earlier runs of this process.

    Raises:
      UserError: it failed, whatever the reason.
    """
    with _logged(folder):
        try:
            result = run.train(config, folder, Clock(), origin, kept=kept)
            whole_run.complete(config, folder, kept)
        except Interrupted:
            raise
        except UserError as error:
            print(f"error: {shortened(str(error))}", file=sys.stderr)
            raise
        except Exception as error:
            if not (line := why_not_ours(error)):
                traceback.print_exc()
                line = f"{type(error).__name__}: {error}"
            print(f"error: {shortened(line)}", file=sys.stderr)
            raise UserError(line) from None
        print("  ".join(f"{name} {value}" for name, value in result.items()))
        return result


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
