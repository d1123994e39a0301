"""What scores a model's params: decoding, loss and logits, by programs that compile once for all params."""

import functools
from typing import Any

import jax
import numpy as np

from fxf.base.weights import Params
from fxf.models.decoder import Decoder
from fxf.models.model import Batch
from fxf.models.quantized import stored_as
from fxf.runs.experiment import Experiment
from fxf.tasks.task import Evaluator
from fxf.training.gradient import batch_loss
from fxf.training.sharding import Layout


class Evaluators:
    """Makes the evaluators of an experiment, `evaluators(params)`, which share its compiled programs."""

    def __init__(self, experiment: Experiment, layout: Layout, seed: int = 0) -> None:
        """Compiles nothing yet.

        Args:
          layout: the layout of the params; the devices share the rows of a batch.
          seed: the seed of sampling.
        """
        trained, programs = experiment.model, experiment.programs["scores", layout]
        model, narrow = stored_as(experiment.decode.weights, trained.plain)
        self._model, self._layout = layout.with_mesh(model), layout
        to_read = jax.jit(lambda params: narrow(trained.to_plain(params)), out_shardings=layout.weights(model.spec))
        self._to_read = None if model.spec is trained.spec else programs.setdefault("weights", to_read)
        self._loss = programs.setdefault("loss", jax.jit(self._loss_of, out_shardings=layout.replicated))
        self._logits = programs.setdefault("logits", jax.jit(self._logits_of, out_shardings=layout.replicated))
        options: Any = {"programs": experiment.programs["decode", layout], "layout": layout}
        rules = experiment.task.rules(experiment.decode)
        self.decoder = Decoder(self._model, config=experiment.decode, seed=seed, **rules, **options)

    def __call__(self, params: Params) -> Evaluator:
        """Returns the evaluator of params, as a task uses it. The weights that it reads are made here, once."""
        params = self._to_read(params) if self._to_read else params
        return Evaluator(
            decode=functools.partial(self.decoder.groups, params),
            loss=functools.partial(self.loss, params),
            logits=functools.partial(self.logits, params),
            in_nats=self._model.loss.of_logits,
            stream=functools.partial(self.decoder.stream, params),
        )

    def shapes(self, params: Params) -> Params:
        """Returns the shapes and shardings of the weights that evaluators read, of those of params."""
        if not self._to_read:
            return params
        placed = self._layout.weights(self._model.spec)
        return jax.tree.map(lambda x, place: x.update(sharding=place), jax.eval_shape(self._to_read, params), placed)

    def loss(self, params: Params, batch: Batch) -> tuple[float, float]:
        """Returns the sums of loss and weight over a batch."""
        loss_sum, weight_sum = self._loss(params, batch)
        return float(loss_sum), float(weight_sum)

    def logits(self, params: Params, batch: Batch) -> np.ndarray:
        """Returns the logits of a batch, [B, T, V]."""
        return np.asarray(self._logits(params, batch))

    def _loss_of(self, params: Params, batch: Batch) -> tuple[jax.Array, jax.Array]:
        return batch_loss(self._model.scored, self._gathered(params), self._layout.shard(batch))

    def _logits_of(self, params: Params, batch: Batch) -> jax.Array:
        return self._model.apply(self._gathered(params), self._layout.shard(batch))

    def _gathered(self, params: Params) -> Params:
        return self._layout.gather(self._model, params)[0]  # by each process
