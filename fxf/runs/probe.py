"""Looking inside a run's model while it reads one text: attention weights, vectors, and the logit lens."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from fxf.base.errors import UserError, nearest
from fxf.base.status import stage
from fxf.base.weights import Params, flatten
from fxf.layers.named import reader
from fxf.models.model import Batch
from fxf.runs.experiment import Experiment
from fxf.runs.generation import Answering


class Matrices(NamedTuple):
    """One or more matrices [N, rows, columns] with titles and labels; without labels there are numbers.

    Attributes:
      is_attention: whether they are weights of attention, whose rows are queries and whose columns are keys.
    """

    values: np.ndarray
    titles: list[str]
    row_labels: list[str]
    column_labels: list[str]
    is_attention: bool = False


class Reading(NamedTuple):
    """The arrays inside a model while it reads one text.

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

    def tokens(self, side: str) -> list[str]:
        """Returns the tokens of a side of the batch, `inputs` or `source`, as text."""
        return [self.experiment.task.token_name(token) for token in np.asarray(self.batch[side])[0].tolist()]

    def is_attention(self, name: str) -> bool:
        """Returns whether an array holds attention weights [1, H, T, S]; the name alone does not tell."""
        value, both = self.arrays[name], sides(name)
        if not name.endswith("/weights") or value.ndim != 4 or not self.batch.keys() >= {*both}:
            return False
        return len(value) == 1 and value.shape[2:] == tuple(self.batch[side].shape[1] for side in both)

    def matrices(self, name: str, head: int | None = None) -> Matrices:
        """Returns the matrices of an array: one for each head of attention weights, else over its last two axes.

        A vector or a scalar is one row.

        Args:
          head: the only matrix to return.

        Raises:
          UserError: there is no such array, or no such head.
        """
        if name not in self.arrays:
            listed = "fxf probe without --name lists them, in Python `arrays`"
            raise UserError(f"no array '{name}' here{nearest(name, self.arrays)}; {listed}")
        value = self.arrays[name]
        # Bools, and types that NumPy lacks, such as bfloat16, are printed as numbers.
        value = value.astype({"b": np.int8, "V": np.float32}.get(value.dtype.kind, value.dtype))
        if self.is_attention(name):
            queries, keys = sides(name)
            titles = [f"head {i}" for i in range(value.shape[1])]
            shown = Matrices(value[0], titles, self.tokens(queries), self.tokens(keys), is_attention=True)
        else:
            matrices = value.reshape(-1, *(1, 1, *value.shape)[-2:])
            titles = [f"{name} {i}" for i in range(len(matrices))] if len(matrices) > 1 else [name]
            tokens = [] if name.startswith("params/") else self.tokens(sides(name)[0])
            of_tokens = value.ndim > 2 and (len(value), value.shape[-2]) == (1, len(tokens))
            shown = Matrices(matrices, titles, tokens if of_tokens else [], [])
        if head is None:
            return shown
        if not 0 <= head < len(shown.values):
            raise UserError(f"head: expected less than {len(shown.values)}, got {head}")
        return shown._replace(values=shown.values[[head]], titles=[shown.titles[head]])

    def lens(self) -> list[Sequence[str]]:
        """Returns a table: for each token read, the most probable next token after each block, with its probability.

        The residual stream after each block goes through the last norm and the final layer (nostalgebraist 2020).
        Arrays `residual` of another shape are left out.
        """
        model, task, programs = self.experiment.model, self.experiment.task, self.experiment.programs["logit_lens"]
        read = programs.setdefault("read", jax.jit(lambda params, x: jax.nn.softmax(model.readout(params, x))))
        shape = jax.eval_shape(model.features, self.params, self.batch).shape
        columns = [["reads", *self.tokens("inputs")]]
        for name, stream in self.arrays.items():
            if name.endswith("residual") and "encoder/" not in name and stream.shape == shape:
                probabilities_TV = np.asarray(read(self.params, stream))[0]
                predictions = [f"{task.token_name(int(row.argmax()))} {row.max():.0%}" for row in probabilities_TV]
                columns.append([name.removeprefix("decoder/").rpartition("/")[0] or name, *predictions])
        return list(zip(*columns, strict=True))


def read(experiment: Experiment, params: Params, prompt: str, answer: str | None = None) -> Reading:
    """Returns the arrays inside the model while it reads a prompt and an answer, by default its own.

    Raises:
      UserError: as `what_is_read`.
    """
    batch = what_is_read(experiment, params, prompt, answer)
    weights = {name: np.asarray(value) for name, value in flatten({"params": params}).items()}
    return Reading(experiment, params, batch, intermediates_of(experiment, params, batch) | weights)


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
        raise UserError(f"task '{experiment.config['task']['name']}' answers no prompts: it has no to_batch")
    read = answer if answer is not None else Answering(experiment, params)([prompt])[0][0][0]
    batch = task.to_batch(prompt, read)
    if answer is None or is_own:  # an answer that fills all positions has a last token that was never read
        batch = {**batch, "inputs": batch["inputs"][:, : experiment.max_len]}
    for side, what in (("source", "the prompt is"), ("inputs", "prompt and answer are")):
        n_tokens = batch[side].shape[1] if side in batch else 0
        if n_tokens > experiment.max_len:
            raise UserError(f"{what} {n_tokens} tokens to read; model.max_len is {experiment.max_len}")
    return batch


@stage("reading the text")
def intermediates_of(experiment: Experiment, params: Params, batch: Batch) -> dict[str, np.ndarray]:
    """Returns the named intermediates of a batch by name."""
    readers, shape = experiment.programs["intermediates"], str(jax.tree.map(np.shape, batch))
    if shape not in readers:
        model = experiment.with_model(attention_implementation="xla").model  # a fused kernel has no weights
        readers[shape] = reader(model.apply, params, batch)
    return {name: np.asarray(value) for name, value in readers[shape](params, batch).items()}


def shape_text(value: np.ndarray) -> str:
    return " x ".join(map(str, value.shape)) or "scalar"


def sides(name: str) -> tuple[str, str]:
    """Returns the sides of a batch that hold the queries and the keys of an array of attention."""
    queries = "source" if name.startswith("encoder/") else "inputs"
    return queries, "source" if "cross_attention" in name else queries


def as_text(shown: Matrices, title: str) -> str:
    """Returns the matrices as tables: attention in percent, floats with two decimals, integers as they are."""
    lines = [title]
    for matrix, name in zip(shown.values, shown.titles, strict=True):
        rows = shown.row_labels or [str(i) for i in range(matrix.shape[0])]
        columns = shown.column_labels or [str(i) for i in range(matrix.shape[1])]
        form = ".0f" if shown.is_attention else "" if np.issubdtype(matrix.dtype, np.integer) else ".2f"
        values = 100 * matrix if shown.is_attention else matrix
        cells = [[label, *(f"{value:{form}}" for value in row)] for label, row in zip(rows, values, strict=True)]
        table = [["", *columns], *cells]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines.append(f"{name}, in percent" if shown.is_attention else name)
        lines += [" ".join(map(str.rjust, row, widths)) for row in table]
    return "\n".join(lines)
