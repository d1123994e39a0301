"""The part of a run's page about its trained model: attention, positions and logit lens of examples; its weights."""

import logging
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from fxf.base import weights
from fxf.base.errors import UserError, shortened
from fxf.base.files import write_atomically
from fxf.base.status import stage
from fxf.base.weights import Params
from fxf.reports import report
from fxf.reports.page import MOST_CHARACTERS, as_json
from fxf.reports.run_files import INSIDE, Record, read
from fxf.runs import probe, run
from fxf.runs.experiment import Experiment, ProgramCache
from fxf.tasks.language_model import BETWEEN

log = logging.getLogger(__name__)

EXAMPLES = 2
MOST_TOKENS = 64  # on each side of a map
MOST_HEADS = 8  # that are shown of a layer
MOST_LAYERS = 8  # that are shown; of more, every second, third …
FIRST_CHARACTERS = 48  # that are shown of a text without a prompt
VECTORS = {"embedding/positions": "positions", "embedding/residual": "embedding of tokens and positions"}


@stage("writing the page")
def write(folder: Path, step: int | None = None, kept: ProgramCache | None = None) -> Path:
    """Loads the run in `folder`, writes inside.json and the page there, and returns the path of the page.

    If no checkpoint can be loaded or inside.json cannot be written, the page has only the metrics, and a warning says
    why.

    Args:
      step: as in `fxf.runs.run.load`.
      kept: the programs of earlier runs of this process.

    Raises:
      UserError: there is no run, or not the checkpoint of `step`.
    """
    files = read(folder)
    try:
        experiment, loaded_step, params = run.load(folder, step)
        experiment = experiment.sharing(kept, "page")  # its attention may differ from that of training
        shown = contents(experiment, loaded_step, params, _texts(files.samples))
        write_atomically(folder / INSIDE, as_json({**shown, "result": files.result}))
    except (UserError, OSError) as error:
        if step is not None:
            raise
        log.warning("warning: the page shows nothing inside the model: %s", error)
    return report.write(folder)


def complete(config: Mapping[str, Any], folder: Path, kept: ProgramCache | None = None) -> None:
    """Writes the page of a run that has ended, unless that is done or `log.report` is off, and prints its path."""
    if config["log"]["report"] and jax.process_count() == 1:
        files = read(folder)
        if files.inside.get("result") != files.result:
            print(write(folder, kept=kept), file=sys.stderr)


def contents(experiment: Experiment, step: int, params: Params, texts: list[tuple[str, str]]) -> dict[str, Any]:
    """Returns what inside.json holds; `texts` are pairs of a prompt and an answer that the model reads."""
    rows = []
    for path, weight, copies in weights.without_repeats(experiment.model.spec):
        shape = ("" if copies == 1 else f"{copies} of ") + " x ".join(map(str, weight.shape))
        rows.append([path, shape, " ".join(weight.axes), copies * math.prod(weight.shape)])
    readable = texts if experiment.task.has("to_batch") else []
    return {
        "step": step,
        "parameters": weights.count(experiment.model.spec),
        "weights": rows,
        "examples": [_example(experiment, params, *pair, first=i == 0) for i, pair in enumerate(readable)],
    }


def _texts(records: list[Record]) -> list[tuple[str, str]]:
    """Returns the prompts and answers of the newest samples, wrong answers first; a text alone is a prompt."""
    rows = records[-1]["rows"] if records else []
    wrong_first = sorted(rows, key=lambda row: row[1] is None or row[1] == row[2])
    pairs = [
        [(prompt, answer)] if prompt else [(text[:FIRST_CHARACTERS], "") for text in answer.split(BETWEEN)]
        for prompt, _, answer, *_ in wrong_first[:EXAMPLES]
    ]
    return [pair for of_row in pairs for pair in of_row][:EXAMPLES]


def _example(experiment: Experiment, params: Params, prompt: str, answer: str, first: bool) -> dict[str, Any]:
    """Returns the maps and the lens of an example; of the first one also the maps of its vectors."""
    given = answer if experiment.task.generates else None
    batch = probe.what_is_read(experiment, params, prompt, given, is_own=True)
    reading = probe.Reading(experiment, params, batch, probe.intermediates_of(experiment, params, batch))
    attention = [name for name in reading.arrays if reading.is_attention(name)]
    vectors = [name for name in VECTORS if first and name in reading.arrays]
    vectors = [name for name in vectors if reading.arrays[name].shape[:-1] == batch["inputs"].shape]  # one a token
    names = [*vectors, *attention[:: -(-len(attention) // MOST_LAYERS) or 1]]
    maps = [_map(VECTORS.get(name) or name.removesuffix("/weights"), reading.matrices(name)) for name in names]
    title = f"{prompt} → {answer}" if answer else prompt
    return {"title": shortened(title, MOST_CHARACTERS), "maps": maps, "lens": [list(row) for row in reading.lens()]}


def _map(name: str, shown: probe.Matrices) -> dict[str, Any]:
    """Returns matrices as heat maps of the page: attention in percent, other values with three digits."""
    attention, (n_heads, n_rows, n_columns) = shown.is_attention, shown.values.shape
    heads = []
    for title, matrix in zip(shown.titles[:MOST_HEADS], shown.values, strict=False):
        cells = map(float, matrix[:MOST_TOKENS, : MOST_TOKENS if attention else None].ravel())
        values = [round(100 * value, 1) if attention else float(f"{value:.3g}") for value in cells]
        heads.append({"title": title if attention else f"{n_rows} x {n_columns}", "values": values})
    return {
        "name": name + (f", the first {len(heads)} of {n_heads} heads" if len(heads) < n_heads else ""),
        "rowName": "query" if attention else "row",
        "columnName": "key" if attention else "column",
        "unit": " %" if attention else "",
        "rows": [visible(token) for token in shown.row_labels[:MOST_TOKENS]],
        "columns": [visible(token) for token in shown.column_labels[:MOST_TOKENS]] or n_columns,
        "heads": heads,
    }


def visible(token: str) -> str:
    """Returns a token with visible signs for its spaces, tabs and line ends."""
    return token.replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥") or "∅"
