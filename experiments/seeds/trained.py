"""Runs of shipped configs, and the pictures that a page shows of them."""

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import fxf
from fxf.models.model import Batch
from fxf.pages import report
from fxf.pages.run_files import RunFiles, read
from fxf.reports import inside, probe
from fxf.runs import command_line, run
from fxf.training.log import Clock

Part = dict[str, Any]
QUIET = {"log.tensorboard": False, "log.report": False}


class Trained(NamedTuple):
    """A finished run: as `fxf.load` loads it, and its files."""

    run: fxf.Run
    files: RunFiles

    @property
    def result(self) -> dict[str, Any]:
        return self.files.result

    @property
    def task(self) -> Any:
        return self.run.experiment.task

    def intermediates(self, batch: Batch) -> dict[str, np.ndarray]:
        """Returns the named arrays inside the model while it reads a batch."""
        return probe.intermediates_of(self.run.experiment, self.run.params, batch)

    def curves(self, *names: str) -> Part:
        """Returns the part with the named curves of the run, by default its losses."""
        return {"kind": "charts", "charts": [c for c in report.charts(self.files) if c["name"] in (names or ("loss",))]}

    def examples(self, texts: list[tuple[str, str]]) -> Part:
        """Returns the part with attention, positions and logit lens of pairs of a prompt and the answer to read."""
        contents = inside.contents(self.run.experiment, self.run.step, self.run.params, texts)
        return {"kind": "examples", "examples": contents["examples"]}


def in_float64(laws: Callable[[], Any]) -> Callable[[], Any]:
    """Returns a function that calls `laws` where JAX has float64."""

    @functools.wraps(laws)
    def wrapped() -> Any:
        with jax.enable_x64(True):
            return laws()

    return wrapped


def trained(folder: Path, config: str, changes: dict[str, Any] | None = None) -> Trained:
    """Trains a shipped config with some keys changed, or takes the run that is in the folder already."""
    clock = Clock(time.perf_counter())
    changes = QUIET | (changes or {})
    made = fxf.read_config(config)
    made.update_from_flattened_dict(changes)
    run.train(made.to_dict(), folder, clock, command_line.origin_of(config, changes))
    return Trained(fxf.load(folder), read(folder))


def heat_map(title: str, values: Any, rows: Any, columns: Any, names: tuple[str, str], unit: str = "") -> Part:
    """Returns one picture of a matrix.

    Args:
      values: [rows, columns].
      rows, columns: labels, or None for numbers.
      names: what the rows and the columns are.
    """
    matrix = np.asarray(values, float)
    n_rows, n_columns = matrix.shape
    return {
        "title": title,
        "rows": n_rows if rows is None else list(rows),
        "columns": n_columns if columns is None else list(columns),
        "rowName": names[0],
        "columnName": names[1],
        "unit": unit,
        "values": [float(f"{value:.3g}") for value in matrix.ravel()],
    }


def maps(title: str, *pictures: Part, text: str = "") -> Part:
    return {"kind": "maps", "title": title, "text": text, "maps": list(pictures)}


def table(title: str, header: list[str], rows: list[list[Any]], text: str = "") -> Part:
    return {"kind": "table", "title": title, "text": text, "header": header, "rows": rows}


def text(title: str, content: str) -> Part:
    return {"kind": "text", "title": title, "content": content}


def largest(difference: Any) -> float:
    """Returns the largest magnitude in an array."""
    return float(np.abs(np.asarray(jax.device_get(difference))).max())
