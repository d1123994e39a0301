"""The contract between a model and whatever trains it or decodes with it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.struct
import jax

from fxf.training.loss import cross_entropy
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
        holds `batch['lengths'][b]` tokens before its padding, into a cache with room for `length` tokens. What the
        prompts translate, where the model reads a source, may have fewer rows: each then serves B / rows prompts.
      step: `step(params, cache, tokens) -> (logits, cache)`: reads one more token a row, int32 [B]; logits [B, V].
        A model that does not generate has neither prefill nor step.
      loss: `loss(readout, features, targets, weights, label_smoothing) -> (loss_sum, weight_sum)`, as `cross_entropy`.
      copies: models in one; a batch's rows are a multiple of it.
      slides: decoding goes on behind the last position, over a window that slides.
    """

    spec: Spec
    features: Callable[..., jax.Array]
    readout: Callable[[Any, jax.Array], jax.Array]
    prefill: Callable[[Any, Batch, int], "Cache"] | None = None
    step: Callable[[Any, "Cache", jax.Array], tuple[jax.Array, "Cache"]] | None = None
    loss: Callable[..., tuple[jax.Array, jax.Array]] = cross_entropy
    copies: int = 1
    slides: bool = False

    def apply(self, params: Params, batch: Batch, *, rng: jax.Array | None = None) -> jax.Array:
        """Returns logits [B, T, V] for a batch."""
        return self.readout(params, self.features(params, batch, rng=rng))


@flax.struct.dataclass
class Cache:
    """What decoding remembers.

    Attributes:
      blocks: what the attention of each block remembers, by row.
      lengths: tokens read so far, int32 [B].
      source: what the rows attend to and never change: the same for every hypothesis of a beam.
      room: tokens that a row can hold.
    """

    blocks: Any
    lengths: jax.Array
    source: Any = None
    room: int = flax.struct.field(pytree_node=False, default=0)

    def select(self, rows: jax.Array) -> "Cache":
        """Returns the cache whose row b is row `rows[b]` of this one; both must share its source."""
        return self.replace(blocks=jax.tree.map(lambda x: x[rows], self.blocks), lengths=self.lengths[rows])  # type: ignore[attr-defined]
