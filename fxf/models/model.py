"""The contract between a model and whatever trains it or decodes with it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from fxf.weights import Spec

Batch = dict[str, jax.Array]


class Model(NamedTuple):
    """Pure functions from a tree of weights to logits, in the manner of optax's `GradientTransformation`.

    Attributes:
      spec: the table of weights.
      apply: `apply(params, batch, *, rng=None) -> logits` [B, T, V]; `rng=None` means no dropout.
      prefill: `prefill(params, batch, length) -> cache`: reads the prompts `batch['inputs']` [B, P], of which row b
        holds `batch['lengths'][b]` tokens before its padding, into a cache with room for `length` tokens.
      step: `step(params, cache, tokens) -> (logits, cache)`: reads one more token a row, int32 [B]; logits [B, V].
    """

    spec: Spec
    apply: Callable[..., jax.Array]
    prefill: Callable[[Any, Batch, int], Any]
    step: Callable[[Any, Any, jax.Array], tuple[jax.Array, Any]]
