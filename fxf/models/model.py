"""The contract between a model and whatever trains it or decodes with it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp

from fxf.layers.attention_kinds import with_places
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
        holds `batch['lengths'][b]` tokens before its padding, into a cache with room for `length` tokens.
      step: `step(params, cache, tokens) -> (logits, cache)`: reads one more token a row, int32 [R]; logits [R, V]. The
        rows are the prompts, or, after `Cache.select`, the hypotheses of the first prompt, of the second, and so on.
        A model that does not generate has neither prefill nor step.
      loss: what trains it, and tells whether its outputs are logits.
      max_len: tokens that a row may hold in decoding; None for any number.
    """

    spec: Spec
    features: Callable[..., jax.Array]
    readout: Callable[[Any, jax.Array], jax.Array]
    prefill: Callable[[Any, Batch, int], "Cache"] | None = None
    step: Callable[[Any, "Cache", jax.Array], tuple[jax.Array, "Cache"]] | None = None
    loss: Loss = CROSS_ENTROPY
    max_len: int | None = None

    def apply(self, params: Params, batch: Batch, *, rng: jax.Array | None = None) -> jax.Array:
        """Returns logits [B, T, V] for a batch."""
        return self.readout(params, self.features(params, batch, rng=rng))


@flax.struct.dataclass
class Cache:
    """What decoding remembers.

    Attributes:
      blocks: what the attention of each block remembers: by row, or, with `ancestors`, by prompt and place.
      lengths: tokens read so far, int32 [R].
      source: what a prompt's rows attend to and never change.
      ancestors: of hypothesis w, the hypothesis that read its token at position c, int32 [B, W, C]; None where each row
        remembers for itself. A prompt's hypotheses so share what they have read, and none is copied when they branch.
    """

    blocks: Any
    lengths: jax.Array
    source: Any = None
    ancestors: jax.Array | None = None

    @property
    def tokens_shape(self) -> tuple[int, int]:
        """Of what a step reads: (B, W) where hypotheses share what they remember, and else (R, 1)."""
        if self.ancestors is None:
            return self.lengths.shape[0], 1
        batch_size, width, _ = self.ancestors.shape
        return batch_size, width

    def select(self, parents_BW: jax.Array) -> "Cache":
        """Returns the cache of W hypotheses a prompt, of which number w goes on from hypothesis parents[b, w] of this.

        W may be another than before, but not smaller.
        """
        batch_size, width = parents_BW.shape
        rows_BW = jnp.arange(batch_size)[:, None] * (self.lengths.shape[0] // batch_size) + parents_BW
        lengths_BW = self.lengths[rows_BW]
        if self.ancestors is None:
            blocks, ancestors = jax.tree.map(lambda x: x[rows_BW.reshape(-1)], self.blocks), None
        else:
            room = self.ancestors.shape[2]
            blocks = with_places(self.blocks, width * room)
            before_BWC = jnp.arange(room)[None, None] < lengths_BW[..., None]
            inherited_BWC = self.ancestors.reshape(len(self.lengths), room)[rows_BW]
            ancestors = jnp.where(before_BWC, inherited_BWC, jnp.arange(width)[None, :, None])
        return Cache(blocks, lengths_BW.reshape(-1), self.source, ancestors)
