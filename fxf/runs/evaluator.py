"""What scores a model's params: decoding, loss and logits, by programs that compile once for all params."""

import functools
from typing import Any

import jax
import numpy as np

from fxf.decoding.config import DecodeConfig
from fxf.decoding.decoder import Decoder
from fxf.machine.compiled import CompiledByShape
from fxf.models.model import Batch, Model
from fxf.tasks.task import Evaluator
from fxf.training.gradient import batch_loss
from fxf.training.log import Clock
from fxf.training.sharding import Layout
from fxf.weights import Params


class Evaluators:
    """Makes the evaluators of a model, `evaluators(params)`, which share its compiled programs."""

    def __init__(
        self,
        model: Model,
        rules: dict[str, Any],
        decode: DecodeConfig,
        layout: Layout,
        clock: Clock,
        programs: dict[Any, dict[Any, Any]],
        seed: int,
    ) -> None:
        """Compiles nothing yet.

        Args:
          rules: `end_token`, `banned` and `prefix` of a `Decoder`.
          layout: the layout of the params; the devices share the rows of a batch.
          clock: counts the time of compiling.
          programs: keeps the compiled programs, by what they do and the layout.
          seed: the seed of sampling.
        """
        self._model, self._layout = layout.with_mesh(model.plain), layout
        compiling = functools.partial(clock.measure, "compile")
        to_plain = jax.jit(model.to_plain, out_shardings=layout.weights(model.plain.spec))
        self._to_plain = CompiledByShape(to_plain, compiling, programs["plain", layout])
        self._is_plain = model.plain_spec is None
        loss, logits = (jax.jit(f, out_shardings=layout.replicated) for f in (self._loss_of, self._logits_of))
        self._loss = CompiledByShape(loss, compiling, programs["loss", layout])
        self._logits = CompiledByShape(logits, compiling, programs["logits", layout])
        options: Any = {"config": decode, "seed": seed, "compiling": compiling, "layout": layout}
        self._decoder = Decoder(self._model, programs=programs["decode", layout], **rules, **options)

    def __call__(self, params: Params) -> Evaluator:
        """Returns the evaluator of params, as a task uses it. Their plain weights are made here, once."""
        params = params if self._is_plain else self._to_plain(params)
        return Evaluator(
            decode=functools.partial(self._decoder.groups, params),
            loss=functools.partial(self.loss, params),
            logits=functools.partial(self.logits, params),
            in_nats=self._model.loss.of_logits,
        )

    def loss(self, params: Params, batch: Batch) -> tuple[float, float]:
        """Returns the sums of loss and weight over a batch."""
        loss_sum, weight_sum = self._loss(params, batch)
        return float(loss_sum), float(weight_sum)

    def logits(self, params: Params, batch: Batch) -> np.ndarray:
        """Returns the logits of a batch, [B, T, V]."""
        return np.asarray(self._logits(params, batch))

    def _loss_of(self, params: Params, batch: Batch) -> tuple[jax.Array, jax.Array]:
        return batch_loss(self._model.scored, self._gathered(params), self._layout.shard_tokens(batch))

    def _logits_of(self, params: Params, batch: Batch) -> jax.Array:
        return self._model.apply(self._gathered(params), self._layout.shard_tokens(batch))

    def _gathered(self, params: Params) -> Params:
        return self._layout.gather(self._model, params)[0]  # by each process
