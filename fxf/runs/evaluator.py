"""Scoring params by programs that compile once for all params, and what a run records of its scores."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from fxf.base.config import flatten
from fxf.base.errors import UserError, one_line, printable
from fxf.base.weights import Params
from fxf.models.decoder import Decoder
from fxf.models.model import Batch, Model
from fxf.models.quantized import stored_as
from fxf.models.speculative import Speculative
from fxf.reports.figures import HIGHER, LOWER
from fxf.runs.compatibility import require_params
from fxf.runs.experiment import Experiment
from fxf.tasks.task import Evaluator
from fxf.training.gradient import batch_loss
from fxf.training.sharding import Layout

# The names of a run's own numbers, in metrics.jsonl and result.json.
OWN = (
    *("step", "steps", "best_step", "skipped_steps", "task", "seed", "identity", "parameters", "goodput"),
    *("loss", "train_loss", "gradient_norm", "learning_rate", "steps_per_second", "tokens_per_second"),
    *("train_seconds", "compile_seconds", "evaluate_seconds", "wall_seconds"),
)


class Evaluators:
    """Makes the evaluators of an experiment, `evaluators(params)`, which share its compiled programs."""

    def __init__(self, experiment: Experiment, layout: Layout | None = None, seed: int = 0) -> None:
        """Compiles nothing yet.

        Args:
          layout: the layout of the params, which also shards the rows of a batch; None: that of `load`.
          seed: the seed of sampling.
        """
        layout = layout or experiment.layout_of_one_copy()
        self._trained = trained = experiment.model
        programs = experiment.programs["scores", layout]
        model, narrow = stored_as(experiment.decode.weights, trained.plain)
        self._model, self._layout = layout.with_mesh(model), layout
        if not programs:
            for name, of_model in (("loss", batch_loss), ("logits", Model.apply)):
                programs[name] = jax.jit(functools.partial(self._of_batch, of_model), out_shardings=layout.replicated)
            shardings = layout.weights(model.spec)
            programs["weights"] = jax.jit(lambda params: narrow(trained.to_plain(params)), out_shardings=shardings)
        self._loss, self._logits = programs["loss"], programs["logits"]
        self._to_read = None if model is trained else programs["weights"]
        options: Any = {"programs": experiment.programs["decode", layout], "layout": layout}
        options |= {"config": experiment.decode, "seed": seed, **experiment.task.rules(experiment.decode)}
        if draft := experiment.draft:
            draft = layout.with_mesh(draft[0]), jax.device_put(draft[1], layout.weights(draft[0].spec)), draft[2]
        self.decoder = Speculative(draft, self._model, **options) if draft else Decoder(self._model, **options)

    def __call__(self, params: Params) -> Evaluator:
        """Returns the evaluator of params, as a task uses it. The weights that it reads are made here, once.

        Raises:
          UserError: the params are not those of the model.
        """
        require_params(self._trained, params)
        params = self._to_read(params) if self._to_read else params

        def loss(batch: Mapping[str, Any]) -> tuple[float, float]:
            loss_sum, weight_sum = self._loss(params, batch)
            return float(loss_sum), float(weight_sum)

        return Evaluator(
            decode=functools.partial(self.decoder.groups, params),
            loss=loss,
            logits=lambda batch: np.asarray(self._logits(params, batch)),
            in_nats=self._model.loss.of_logits,
            stream=functools.partial(self.decoder.stream, params),
        )

    def shapes(self, params: Params) -> Params:
        """Returns the shapes and shardings of the weights that evaluators read, from those of params."""
        if not self._to_read:
            return params
        placed = self._layout.weights(self._model.spec)
        return jax.tree.map(lambda x, place: x.update(sharding=place), jax.eval_shape(self._to_read, params), placed)

    def _of_batch(self, function: Callable[[Model, Params, Batch], Any], params: Params, batch: Batch) -> Any:
        """Returns `function(model, params, batch)` with gathered params and a sharded batch."""
        return function(self._model.scored, self._layout.gather(self._model, params)[0], self._layout.shard(batch))


def plain(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Returns metrics by name, with numbers of NumPy and JAX as Python's.

    Raises:
      UserError: a metric is neither a number nor a text, or has the name of a number of the run's own.
    """
    found = {name: value.item() if getattr(value, "size", 0) == 1 else value for name, value in figures.items()}
    for name, value in found.items():
        if name in OWN or (name not in ("samples", "answers") and not isinstance(value, int | float | str | None)):
            expected = "expected a number, by a name that a run does not use itself"
            raise UserError(f"metric {name}: {expected}, got {one_line(repr(value))}")
    return found


def sample_text(prompt: str, expected: str | None, answer: str, cut_off: bool = False) -> str:
    """Returns the printed form of a sample: one line, or the lines of its text if it has no prompt."""
    mark = "   (cut off)" if cut_off else ""
    if not prompt:
        return "\n".join(map(printable, answer.split("\n"))) + mark
    wrong = expected is not None and answer != expected
    return printable(f"{prompt}  →  {answer}{mark}" + (f"   (expected: {expected})" if wrong else ""))


def scoring_of(experiment: Experiment) -> dict[str, Any]:
    """Returns what config.json records of the scores, so that only runs that are scored alike are ranked.

    `better` has the direction of each metric, "" if the task does not give it, `unit` that of its losses, and `scored`
    what identifies the data that it scores.
    """
    task, best = experiment.task, experiment.checkpoint.best
    both = {name for name in task.metrics if f"-{name}" in task.metrics}  # the user chooses their direction
    names = [name for name in task.metrics if name.removeprefix("-") not in both]
    better = {name.removeprefix("-"): LOWER if name.startswith("-") else HIGHER for name in [*names, best] if name}
    return {"better": dict.fromkeys(both, "") | better, "unit": unit_of(experiment), "scored": scored_of(experiment)}


def unit_of(experiment: Experiment) -> str:
    """Returns the unit of an experiment's losses: nats, or the name of the model that has a loss of its own."""
    return "nats" if experiment.model.loss.of_logits else experiment.model_config.name


def scored_of(experiment: Experiment) -> dict[str, Any]:
    """Returns the task's own description of the data that it scores, else its keys and the digests of its data."""
    if (scored := experiment.task.scored_data()) is not None:
        return scored
    keys = {key: value for key, value in flatten(experiment.config) if key.startswith(("task.", "data."))}
    others = ("task.metrics", "data.prepared")
    # A digest named like a key, such as data.path, replaces it.
    return {key: value for key, value in keys.items() if key not in others} | experiment.task.digests()
