"""The contract between a model and whatever trains it or decodes with it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from fxf.layers.cache import Cache
from fxf.layers.loss import CROSS_ENTROPY, Loss
from fxf.weights import Params, Spec

Batch = dict[str, jax.Array]


class Model(NamedTuple):
    """Pure functions from a tree of weights to logits, in the manner of optax's `GradientTransformation`.

    Attributes:
      spec: the table of weights.
      features: `features(params, batch, *, rng=None)` [B, T, D], the residual stream after the last block; `rng=None`
        means no dropout.
      readout: `readout(params, features)`: [..., D] to logits [..., V], each row on its own: the last norm and the
        final layer.
      prefill: `prefill(params, batch, length) -> cache`: reads the prompts `batch['inputs']` [B, P], of which row b
        holds `batch['lengths'][b]` tokens before its padding, into a cache with room for `length` tokens. It may also
        hold `positions` [B, length], of all tokens that the row will hold, in their order.
      step: `step(params, cache, tokens) -> (logits, cache)`: reads one more token a row, int32 [R]; logits [R, V]. The
        rows are the prompts, or, after `Cache.select`, the hypotheses of the first prompt, of the second, and so on.
        A model that does not generate has neither prefill nor step.
      loss: what trains it, and tells whether its outputs are logits.
      penalty: `penalty(params, step)`, a scalar that training adds to the mean loss; None for none.
      max_len: tokens that a row may hold in decoding; None for any number.
    """

    spec: Spec
    features: Callable[..., jax.Array]
    readout: Callable[[Any, jax.Array], jax.Array]
    prefill: Callable[[Any, Batch, int], Cache] | None = None
    step: Callable[[Any, Cache, jax.Array], tuple[jax.Array, Cache]] | None = None
    loss: Loss = CROSS_ENTROPY
    penalty: Callable[[Any, jax.Array], jax.Array] | None = None
    max_len: int | None = None

    def apply(self, params: Params, batch: Batch, *, rng: jax.Array | None = None) -> jax.Array:
        """Returns logits [B, T, V] for a batch."""
        return self.readout(params, self.features(params, batch, rng=rng))
