"""What the page of a run shows of its trained model: attention, positions and logit lens of examples; the weights."""

import logging
import math
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fxf import weights
from fxf.errors import UserError
from fxf.files import to_json, write_atomically
from fxf.machine.status import stage
from fxf.models.model import Batch
from fxf.pages import report
from fxf.pages.page import as_json, shortened
from fxf.pages.run_files import INSIDE, SAMPLES, Record, read
from fxf.reports import probe
from fxf.runs import run
from fxf.runs.experiment import Experiment
from fxf.runs.programs import Kept, program_key
from fxf.training.log import Clock
from fxf.weights import Params

log = logging.getLogger(__name__)

EXAMPLES = 2
MOST_TOKENS = 64  # of each side of a map; examples are padded to a multiple of as many
MOST_HEADS = 8  # of a layer
MOST_CELLS = 120_000  # of the maps of an example
FIRST_CHARACTERS = 48  # of a text without a prompt
VECTORS = {"embedding/positions": "positions", "embedding/residual": "embedding of tokens and positions"}


@stage("writing the page")
def write(folder: Path, step: int | None = None, config_file: str | None = None, kept: Kept | None = None) -> Path:
    """Loads the run in `folder`, writes inside.json and the page there, and returns the path of the page.

    Without a checkpoint that can be loaded, or without room for what is found, the page has the figures alone, and a
    warning says why.

    Args:
      step, config_file: as in `fxf.runs.run.load`.
      kept: the programs of earlier runs of this process.

    Raises:
      UserError: there is no run.
    """
    read(folder)  # raises an error if there is no run
    try:
        experiment, found, params = run.load(folder, step, config_file=config_file)
        if kept is not None:  # apart from those of training, which may compute attention otherwise
            programs = kept.setdefault(f"page {program_key(experiment)}", experiment.programs)
            experiment = experiment._replace(programs=programs)
        if not read(folder).samples and (rows := _tested(experiment, params)):
            write_atomically(folder / SAMPLES, to_json({"step": found, "test": True, "rows": rows}) + "\n")
        files = read(folder)
        shown = contents(experiment, found, params, _texts(files.samples))
        write_atomically(folder / INSIDE, as_json({**shown, "result": files.result}))
    except (UserError, OSError) as error:
        log.warning("warning: the page shows nothing inside the model: %s", error)
    return report.write(folder)


def is_of_the_result(folder: Path) -> bool:
    """Returns whether inside.json was written after the result of the run."""
    files = read(folder)
    return files.inside.get("result") == files.result


def contents(experiment: Experiment, step: int, params: Params, texts: list[tuple[str, str]]) -> dict[str, Any]:
    """Returns what inside.json holds; `texts` are pairs of a prompt and an answer that the model reads."""
    spec = experiment.model.spec
    rows = [
        [path, ("" if copies == 1 else f"{copies} x ") + " x ".join(map(str, weight.shape)), " ".join(weight.axes),
         copies * math.prod(weight.shape)]
        for path, weight, copies in weights.without_repeats(spec)
    ]  # fmt: skip
    readable = texts if experiment.task.has("to_batch") else []
    return {
        "step": step,
        "parameters": weights.count(spec),
        "weights": rows,
        "examples": [_example(experiment, params, *pair, first=i == 0) for i, pair in enumerate(readable)],
    }


def _tested(experiment: Experiment, params: Params) -> list[Any]:
    """Returns the samples of the task's test, for a run that has written none."""
    clock = Clock(time.perf_counter())
    return experiment.task.test(experiment.evaluator(clock, experiment.layout_of_one_copy())(params)).get("samples", [])


def _texts(records: list[Record]) -> list[tuple[str, str]]:
    """Returns the prompts and answers of the newest samples, wrong answers first; a text alone is a prompt."""
    rows = sorted(records[-1]["rows"] if records else [], key=lambda row: row[1] is None or row[1] == row[2])[:EXAMPLES]
    return [(prompt, answer) if prompt else (answer[:FIRST_CHARACTERS], "") for prompt, _, answer, *_ in rows]


def _example(experiment: Experiment, params: Params, prompt: str, answer: str, first: bool) -> dict[str, Any]:
    given = answer if experiment.task.generates else None
    batch = probe.what_is_read(experiment, params, prompt, given, is_own=True)
    whole = padded(experiment, batch)
    inside = probe.intermediates_of(experiment, params, whole)
    lens = probe.logit_lens(experiment, params, whole, inside)[: 1 + batch["inputs"].shape[1]]
    names = [name for name, value in inside.items() if probe.is_attention(name, value, whole)]
    vectors = [name for name in VECTORS if name in inside and _are_vectors(inside[name], whole)]
    inside = {name: _without_padding(name, inside[name], batch) for name in (*names, *vectors)}
    maps = [_attention(experiment, inside, name, batch) for name in _within_bounds(inside, names)]
    if first:
        maps = [_vectors(experiment, inside, name, batch) for name in vectors] + maps
    title = f"{prompt} → {answer}" if answer else prompt
    return {"title": shortened(title), "maps": maps, "lens": [list(row) for row in lens]}


def padded(experiment: Experiment, batch: Batch) -> Batch:
    """Returns a batch of one row with padding, so that few programs read all examples, those of other seeds too.

    A model that generates reads the tokens before the padding as without it. Where padding might change what is read,
    there is none.
    """
    if experiment.model.step is None or not batch.keys() <= {"inputs", "positions", "source", "source_mask"}:
        return batch

    def longer(name: str, value: jax.Array) -> jax.Array:
        length = min(-(-value.shape[1] // MOST_TOKENS) * MOST_TOKENS, experiment.max_len)
        more = max(length - value.shape[1], 0)
        rows = np.pad(np.asarray(value), ((0, 0), (0, more)), "edge" if name == "positions" else "constant")
        return jax.device_put(rows)

    return {name: longer(name, value) for name, value in batch.items()}


def _are_vectors(value: np.ndarray, batch: Batch) -> bool:
    """Returns whether an array has a vector for each token of a batch, [1, T, D]; a layer's own may have any shape."""
    return value.ndim == 3 and value.shape[:2] in {tuple(batch[side].shape) for side in probe.SIDES if side in batch}


def _without_padding(name: str, value: np.ndarray, batch: Batch) -> np.ndarray:
    rows, columns = (batch[side].shape[1] for side in probe.sides(name))
    return value[:, :, :rows, :columns] if name.endswith("/weights") else value[:, :rows]


def _within_bounds(inside: dict[str, np.ndarray], names: list[str]) -> list[str]:
    """Returns the layers to show: all, or as many as the page has room for, from the first to the last."""
    cells = max((_cut(inside[name])[0].size for name in names), default=1)
    n_shown = max(2, MOST_CELLS // cells)
    if len(names) <= n_shown:
        return names
    return [names[round(i * (len(names) - 1) / (n_shown - 1))] for i in range(n_shown)]


def _cut(values: np.ndarray) -> np.ndarray:
    return values[:1, :MOST_HEADS, :MOST_TOKENS, :MOST_TOKENS]


def _attention(experiment: Experiment, inside: dict[str, np.ndarray], name: str, batch: Batch) -> dict[str, Any]:
    shown = probe.matrices(experiment, inside, name, batch)
    values, n_heads = _cut(inside[name])[0], inside[name].shape[1]
    heads = [
        {"title": f"head {i}", "values": [round(100 * float(value), 1) for value in head.ravel()]}
        for i, head in enumerate(values)
    ]
    others = f", the first {len(heads)} of {n_heads} heads" if len(heads) < n_heads else ""
    return {
        "name": name.removesuffix("/weights") + others,
        "rowName": "query",
        "columnName": "key",
        "unit": " %",
        "rows": [probe.visible(token) for token in shown.row_labels[:MOST_TOKENS]],
        "columns": [probe.visible(token) for token in shown.column_labels[:MOST_TOKENS]],
        "heads": heads,
    }


def _vectors(experiment: Experiment, inside: dict[str, np.ndarray], name: str, batch: Batch) -> dict[str, Any]:
    values_TD = inside[name][0, :MOST_TOKENS]
    labels = [probe.visible(token) for token in probe.token_labels(experiment, batch, _side(batch, values_TD))]
    values = [float(f"{value:.3g}") for value in values_TD.ravel()]
    return {
        "name": VECTORS[name],
        "rowName": "token",
        "columnName": "element of the vector",
        "rows": labels[:MOST_TOKENS],
        "columns": values_TD.shape[1],
        "heads": [{"title": f"{len(values_TD)} positions, {values_TD.shape[1]} elements", "values": values}],
    }


def _side(batch: Batch, values_TD: np.ndarray) -> str:
    return "inputs" if batch["inputs"].shape[1] == len(values_TD) or "source" not in batch else "source"
