"""A run as the commands train it: at its end its page gets what is inside the model, and its trackers pictures."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fxf.files import is_remote
from fxf.reports.run_files import read
from fxf.runs import run_folder
from fxf.runs.programs import Kept
from fxf.training.trackers import Trackers

SIDE = 480  # pixels of a map in a picture, about
WHITE, DARK = np.array([255.0, 255.0, 255.0]), np.array([8.0, 48.0, 107.0])


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
            result = run_folder.read_result(workdir) or {}
            trackers.pictures(result.get("steps", 0), pictures(workdir))


def pictures(folder: Path) -> dict[str, np.ndarray]:
    """Returns the maps of the first example in inside.json by tag, uint8 [height, width, 3], the heads side by side.

    A row is a query and a column a key; darker is more attention, and each head has a scale of its own.
    """
    examples = read(folder).inside.get("examples") or [{"maps": []}]
    maps = [shown for shown in examples[0]["maps"] if shown["rowName"] == "query"]
    return {f"attention/{shown['name'].split(',')[0]}": _picture(shown) for shown in maps}


def _picture(shown: dict[str, Any]) -> np.ndarray:
    shape = len(shown["rows"]), len(shown["columns"])
    size = max(1, SIDE // max(shape))
    heads = [np.array(head["values"], float).reshape(shape) for head in shown["heads"]]
    shares = [np.kron(head / max(head.max(), 1e-9), np.ones((size, size))) for head in heads]
    framed = np.concatenate([np.pad(share, size // 4 + 1, constant_values=0.5) for share in shares], axis=1)
    return (WHITE + framed[..., None] * (DARK - WHITE)).round().astype(np.uint8)
