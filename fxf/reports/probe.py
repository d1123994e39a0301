"""Looking inside a run's model while it reads one text: attention weights, vectors, and the logit lens."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np

from fxf.errors import UserError, nearest
from fxf.layers.intermediates import reader
from fxf.machine.status import stage
from fxf.models.model import Batch
from fxf.runs.experiment import Experiment
from fxf.runs.generation import generate_texts
from fxf.weights import Params, flatten

if TYPE_CHECKING:
    from treescope.figures import TreescopeFigure

MOST_CHARACTERS = 14  # of a token beside a heat map
MOST_PIXELS = 320  # of the longer side of a matrix in a notebook, if its cells can be seen
SIDES = ("source", "inputs")  # of a batch of tokens
KEY = "key"  # the columns of attention weights


class Matrices(NamedTuple):
    """One or more matrices [N, rows, columns] over the same rows and columns; without labels, these have numbers.

    Attributes:
      row_name, column_name: what the rows and the columns are.
    """

    values: np.ndarray
    titles: list[str]
    row_labels: list[str]
    column_labels: list[str]
    row_name: str = "row"
    column_name: str = "column"

    @property
    def is_attention(self) -> bool:
        return self.column_name == KEY


class Reading(NamedTuple):
    """What is inside a model while it reads one text.

    Attributes:
      batch: the batch of one row that it reads.
      arrays: the named intermediates of the batch, and the weights, as "params/…", by name.
    """

    experiment: Experiment
    params: Params
    batch: Batch
    arrays: dict[str, np.ndarray]

    def __repr__(self) -> str:
        """Returns the names and shapes of the arrays, where a notebook would print all weights."""
        return "\n".join(f"{name}  {shape_text(value)}" for name, value in self.arrays.items())

    def matrices(self, name: str, head: int | None = None) -> Matrices:
        """Returns the matrices of an array: one for each head of attention weights, else over its last two axes.

        Args:
          head: the only matrix to return.

        Raises:
          UserError: there is no such array, it has no elements, or no such head.
        """
        shown = matrices(self.experiment, self.arrays, name, self.batch)
        if head is None:
            return shown
        if not 0 <= head < len(shown.values):
            raise UserError(f"head: expected less than {len(shown.values)}, got {head}")
        return shown._replace(values=shown.values[head:][:1], titles=shown.titles[head:][:1])

    def show(self, name: str, head: int | None = None) -> "TreescopeFigure":
        """Returns the matrices of an array side by side, as a figure that a notebook shows."""
        return interactive(self.matrices(name, head))

    def lens(self) -> list[Sequence[str]]:
        """Returns a table: for each token read, the most probable next token after each block."""
        return logit_lens(self.experiment, self.params, self.batch, self.arrays)


def read(experiment: Experiment, params: Params, prompt: str, answer: str | None = None) -> Reading:
    """Returns what is inside the model while it reads a prompt and an answer, by default its own.

    Raises:
      UserError: as `what_is_read`.
    """
    batch = what_is_read(experiment, params, prompt, answer)
    return Reading(experiment, params, batch, arrays_inside(experiment, params, batch))


def what_is_read(
    experiment: Experiment, params: Params, prompt: str, answer: str | None = None, *, is_own: bool = False
) -> Batch:
    """Returns the batch of one row in which the model reads a prompt and an answer. By default it reads its own.

    Args:
      is_own: whether the model has written the given answer.

    Raises:
      UserError: the task cannot read the prompt, or the model has too few positions for it.
    """
    task = experiment.task
    if not task.has("to_batch"):
        name = experiment.config["task"]["name"]
        raise UserError(f"task '{name}' answers no prompts: it has no to_batch")
    if answer is not None and not task.generates:
        raise UserError("a second text: this task fills in the blanks of the first text; give only that one")
    read = answer if answer is not None else generate_texts(experiment, params, [prompt])[0][0][0]
    batch = task.to_batch(prompt, read)
    if answer is None or is_own:  # an answer that fills all positions has a last token that was never read
        batch = {**batch, "inputs": batch["inputs"][:, : experiment.max_len]}
    for side in SIDES:
        n_tokens = batch[side].shape[1] if side in batch else 0
        if n_tokens > experiment.max_len:
            what = "the prompt is" if side == "source" else "prompt and answer are"
            raise UserError(f"{what} {n_tokens} tokens to read; model.max_len is {experiment.max_len}")
    return batch


def arrays_inside(experiment: Experiment, params: Params, batch: Batch) -> dict[str, np.ndarray]:
    """Returns arrays by name: the named intermediates of a batch, and the weights, as "params/…"."""
    weights = flatten({"params": params})
    return intermediates_of(experiment, params, batch) | {name: np.asarray(value) for name, value in weights.items()}


@stage("reading the text")
def intermediates_of(experiment: Experiment, params: Params, batch: Batch) -> dict[str, np.ndarray]:
    """Returns the named intermediates of a batch by name."""
    readers, shape = experiment.programs["intermediates"], str(jax.tree.map(np.shape, batch))
    if shape not in readers:
        # The same function, but each block has intermediates of its own, and attention has weights.
        model = experiment.with_model(attention_implementation="xla", scan_blocks=False, remat="none").model
        readers[shape] = reader(model.apply, params, batch)
    return {name: np.asarray(value) for name, value in readers[shape](params, batch).items()}


def matrices(experiment: Experiment, arrays: dict[str, np.ndarray], name: str, batch: Batch) -> Matrices:
    """Returns the matrices of the array `name`: one for each head of attention weights, else over its last two axes.

    Of an array of fewer axes it is one row; of a number for each token [1, T], one column.

    Raises:
      UserError: there is no such array, or it has no elements.
    """
    if name not in arrays:
        listed = "fxf probe without --name lists them, in Python `arrays`"
        raise UserError(f"no array '{name}' here{nearest(name, arrays)}; {listed}")
    value = _printable(arrays[name])
    if not value.size:
        raise UserError(f"array '{name}' ({shape_text(value)}) has no elements to show")
    if is_attention(name, value, batch):
        rows, columns = (token_labels(experiment, batch, side) for side in sides(name))
        return Matrices(value[0], [f"head {i}" for i in range(value.shape[1])], rows, columns, "query", KEY)
    rows = [] if name.startswith("params/") else token_labels(experiment, batch, sides(name)[0])
    if value.shape == (1, len(rows)):
        value = value[..., None]
    of_batch = value.ndim > 2 and len(value) == 1 and not name.startswith("params/")
    rows = rows if of_batch and len(rows) == value.shape[-2] else []
    names = ("token" if rows else "position", "element of the vector") if of_batch else ("row", "column")
    matrix = value.reshape(-1, *(1, 1, *value.shape)[-2:])
    titles = [f"{name} {i}" for i in range(len(matrix))] if len(matrix) > 1 else [name]
    return Matrices(matrix, titles, rows, [], *names)


def _printable(value: np.ndarray) -> np.ndarray:
    """Returns an array of truth values, or of a type that NumPy does not have, such as bfloat16, as one of numbers."""
    return value.astype({"b": np.int8, "V": np.float32}.get(value.dtype.kind, value.dtype))


def shape_text(value: np.ndarray) -> str:
    return " x ".join(map(str, value.shape)) or "scalar"


def sides(name: str) -> tuple[str, str]:
    """Returns the sides of a batch whose tokens are the queries and the keys of an array of attention."""
    queries = "source" if name.startswith("encoder/") else "inputs"
    return queries, "source" if "cross_attention" in name else queries


def is_attention(name: str, value: np.ndarray, batch: Batch) -> bool:
    """Returns whether an array has the attention weights [1, H, T, S] of a batch; other arrays may have that name."""
    if not name.endswith("/weights") or value.ndim != 4 or not batch.keys() >= {*sides(name)}:
        return False
    return len(value) == 1 and value.shape[2:] == tuple(batch[side].shape[1] for side in sides(name))


def token_labels(experiment: Experiment, batch: Batch, side: str) -> list[str]:
    """Returns the tokens of a side of a batch, `inputs` or `source`, as text."""
    return [experiment.task.token_name(token) for token in np.asarray(batch[side])[0].tolist()]


def visible(token: str) -> str:
    """Returns a token with its spaces and line ends as signs that can be seen."""
    return token.replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥") or "∅"


def _short(label: str) -> str:
    return label if len(label) <= MOST_CHARACTERS else f"{label[: MOST_CHARACTERS - 1]}…"


def as_text(shown: Matrices, title: str) -> str:
    """Returns the matrices as tables: weights in percent, whose headings say so; other values to two digits."""
    lines = [title]
    for matrix, name in zip(shown.values, shown.titles, strict=True):
        rows = shown.row_labels or [str(i) for i in range(matrix.shape[0])]
        columns = shown.column_labels or [str(i) for i in range(matrix.shape[1])]
        percent = shown.is_attention
        digits = "" if np.issubdtype(matrix.dtype, np.integer) else ".2f"
        cells = [[f"{100 * v:.0f}" if percent else f"{v:{digits}}" for v in row] for row in matrix]
        widths = [max(len(c), *(len(row[i]) for row in cells)) for i, c in enumerate(columns)]
        first = max(map(len, rows))
        lines.append(f"{name}, in percent" if percent else name)
        for label, line in zip(["", *rows], [columns, *cells], strict=True):
            lines.append(" ".join([label.rjust(first), *(c.rjust(w) for c, w in zip(line, widths, strict=True))]))
    return "\n".join(lines)


def draw(shown: Matrices, title: str, path: Path) -> None:
    """Writes the matrices as heat maps, in the format of the file's name (png or svg).

    Raises:
      UserError: the name has another ending, the file cannot be written, or the numbers are complex.
    """
    _require_real(shown)
    if path.suffix not in (".png", ".svg"):
        raise UserError(f"--output: expected a name that ends in .png or .svg, got {path}")
    from fxf.reports.plots import Axis, plot_heat_maps

    rows, columns = (
        Axis(name, [_short(visible(token)) for token in labels])
        for name, labels in ((shown.row_name, shown.row_labels), (shown.column_name, shown.column_labels))
    )
    try:
        plot_heat_maps(path, shown.values, shown.titles, rows, columns, title, shown.is_attention)
    except OSError as error:
        raise UserError(f"--output: {path}: {error.strerror}") from None


def _require_real(shown: Matrices) -> None:
    if np.iscomplexobj(shown.values):
        raise UserError(f"array '{shown.titles[0]}': complex numbers have no heat map; they are shown as text")


def interactive(shown: Matrices) -> "TreescopeFigure":
    """Returns the matrices side by side, as a figure that a notebook shows; the pointer finds a value and its place."""
    import treescope

    _require_real(shown)
    labels = [shown.titles, *(list(map(visible, tokens)) for tokens in (shown.row_labels, shown.column_labels))]
    return treescope.render_array(
        shown.values,
        rows=[1],
        columns=[2, 0],
        around_zero=not shown.is_attention,
        vmin=0 if shown.is_attention else None,
        axis_labels={0: "head" if shown.is_attention else "array", 1: shown.row_name, 2: shown.column_name},
        axis_item_labels={axis: of_axis for axis, of_axis in enumerate(labels) if of_axis},
        pixels_per_cell=min(max(MOST_PIXELS // max(shown.values.shape[1:]), 3), 20),
    )


def logit_lens(
    experiment: Experiment, params: Params, batch: Batch, inside: dict[str, np.ndarray] | None = None
) -> list[Sequence[str]]:
    """Returns a table: for each token read, the most probable next token after each block, with its probability.

    The residual stream of every block goes through the last norm and the final layer (nostalgebraist 2020). An array
    of another shape that a layer names `residual` does not.

    Args:
      inside: the intermediates of the batch, if they are known already.
    """
    inside = intermediates_of(experiment, params, batch) if inside is None else inside
    programs = experiment.programs["logit_lens"]  # the jitted function compiles once for each shape
    sizes = str(jax.tree.map(np.shape, batch))
    if sizes not in programs:
        programs[sizes] = jax.eval_shape(experiment.model.features, params, batch).shape
    streams = {
        name: value
        for name, value in inside.items()
        if name.endswith("residual") and "encoder/" not in name and value.shape == programs[sizes]
    }
    read = programs.setdefault("read", jax.jit(lambda params, x: jax.nn.softmax(experiment.model.readout(params, x))))
    columns: list[list[str]] = []
    for name, stream in streams.items():
        probabilities = np.asarray(read(params, stream))[0]
        best = probabilities.argmax(-1)
        predictions = [
            f"{experiment.task.token_name(int(t))} {100 * p[t]:.0f}%" for t, p in zip(best, probabilities, strict=True)
        ]
        columns.append(["/".join(name.split("/")[-2:-1]) or name, *predictions])
    return list(zip(["reads", *token_labels(experiment, batch, "inputs")], *columns, strict=True))
