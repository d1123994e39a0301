"""The cache of decoding, and how the hypotheses of a beam share it.

A prompt's cache has C places, each for the keys and values of one token. Greedy decoding and sampling have one
hypothesis, whose token l has place l. The hypotheses of a beam share the places: `reads[b, w, c]` says whether
hypothesis w reads place c. A new token goes to a place that no hypothesis reads. When hypotheses branch, `select`
selects rows of `reads` and copies no keys. As most hypotheses differ in their newest tokens only, they need little more
places than one hypothesis alone.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from fxf.layers.config import TransformerConfig


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class KeysValues:
    """The keys and values of one attention layer, each [B, G, C, K]."""

    keys: jax.Array
    values: jax.Array


def init_keys_values(config: TransformerConfig, batch_size: int, length: int, dtype: Any) -> KeysValues:
    """Returns keys and values of zeros with room for `length` tokens in each row."""
    zeros = jnp.zeros((batch_size, config.n_groups, length, config.head_width), dtype)
    return KeysValues(zeros, zeros)


def write(cache: KeysValues, places_BT: jax.Array, new: KeysValues) -> KeysValues:
    """Returns the cache with new keys and values, [B, G, T, K], at these places of each row."""
    rows_B1 = jnp.arange(cache.keys.shape[0])[:, None]
    return KeysValues(
        keys=cache.keys.at[rows_B1, :, places_BT].set(new.keys.transpose(0, 2, 1, 3)),
        values=cache.values.at[rows_B1, :, places_BT].set(new.values.transpose(0, 2, 1, 3)),
    )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Cache:
    """The state of decoding B prompts with W hypotheses each, in R = B · W rows.

    Attributes:
      blocks: the cache of each block's attention. Its first axis is B if there are places, and R if not.
      lengths: numbers of tokens read so far, int32 [R].
      source: the memory of a source, which all rows of a prompt read.
      positions: the positions of all tokens of a prompt, [B, T], if the prompts give them; None for 0, 1, … Its first
        axis is R if there are no places.
      walks_BMCJ: the states of the walks along the tokens, which hold the tokens' positions; None if the kind of
        positions makes none from tokens.
      reads_BWC: whether a hypothesis reads a place, bool; None if each prompt has one hypothesis.
      indices_BC: the index, in its hypothesis, of the token at each place, int32; None if token l has place l.
      n_places: C; 0 if each row has a cache of its own, which does not grow with its tokens.
    """

    blocks: Any
    lengths: jax.Array
    source: Any = None
    positions: jax.Array | None = None
    walks_BMCJ: jax.Array | None = None
    reads_BWC: jax.Array | None = None
    indices_BC: jax.Array | None = None
    n_places: int = dataclasses.field(default=0, metadata={"static": True})

    def as_tokens(self, x_R: jax.Array) -> jax.Array:
        """Returns the elements of the rows as [B, W]; as [R, 1] if each prompt has one row."""
        return x_R[:, None] if self.reads_BWC is None else x_R.reshape(self.reads_BWC.shape[:2])

    def token_indices(self) -> jax.Array:
        """Returns the index in its hypothesis of the token at each place, int32 [B, C], or [1, C] for all prompts."""
        return jnp.arange(self.n_places)[None] if self.indices_BC is None else self.indices_BC

    def with_new(self, indices_BT: jax.Array) -> tuple["Cache", jax.Array]:
        """Returns the cache in which new tokens have places, and these, int32 [B, T].

        Args:
          indices_BT: the indices in their rows of one new token of each hypothesis, or of T of the only one.
        """
        if self.reads_BWC is None or self.indices_BC is None:
            return self, indices_BT
        batch_size, width, n_places = self.reads_BWC.shape
        # Of equal elements, top_k returns the first. If too few places are free, the last ones are not.
        is_free_BC = ~self.reads_BWC.any(axis=1)
        places_BW = jax.lax.top_k(is_free_BC.astype(jnp.float32), width)[1]
        reads_BWC = self.reads_BWC | (places_BW[..., None] == jnp.arange(n_places)[None, None])
        indices_BC = self.indices_BC.at[jnp.arange(batch_size)[:, None], places_BW].set(indices_BT)
        return dataclasses.replace(self, reads_BWC=reads_BWC, indices_BC=indices_BC), places_BW

    def is_full(self) -> jax.Array:
        """Returns whether there is no place for another token of each hypothesis, bool [B], or [1] for all prompts."""
        if not self.n_places:
            return jnp.zeros(1, bool)
        if self.reads_BWC is None:
            return self.lengths >= self.n_places
        return (~self.reads_BWC.any(axis=1)).sum(axis=1) < self.reads_BWC.shape[1]

    def hide_unread(self, bias_BHTC: jax.Array) -> jax.Array:
        """Returns the bias with -inf for the places that a query's hypothesis does not read."""
        return bias_BHTC if self.reads_BWC is None else jnp.where(self.reads_BWC[:, None], bias_BHTC, -jnp.inf)

    def last_states(self) -> jax.Array:
        """Returns the state of each row's walk at its newest token, [R, M, J]; 0 if there is no token."""
        assert self.walks_BMCJ is not None
        newest_BW = self.as_tokens(self.lengths - 1)
        places_BW = jnp.maximum(newest_BW, 0)
        if self.reads_BWC is not None and self.indices_BC is not None:
            is_newest_BWC = self.reads_BWC & (self.indices_BC[:, None] == newest_BW[..., None])
            places_BW = jnp.argmax(is_newest_BWC, axis=2)
        found_BMWJ = jnp.take_along_axis(self.walks_BMCJ, places_BW[:, None, :, None], axis=2)
        found_RMJ = found_BMWJ.transpose(0, 2, 1, 3).reshape(-1, *found_BMWJ.shape[1::2])
        return jnp.where(self.lengths[:, None, None] > 0, found_RMJ, 0)

    def write_states(self, places_BT: jax.Array, states_BMTJ: jax.Array) -> "Cache":
        """Returns the cache with the states of the walks at new tokens."""
        assert self.walks_BMCJ is not None
        rows_B1 = jnp.arange(self.walks_BMCJ.shape[0])[:, None]
        walks_BMCJ = self.walks_BMCJ.at[rows_B1, :, places_BT].set(states_BMTJ.transpose(0, 2, 1, 3))
        return dataclasses.replace(self, walks_BMCJ=walks_BMCJ)

    def select(self, parents_BW: jax.Array) -> "Cache":
        """Returns the cache of W hypotheses for each prompt, where hypothesis w continues hypothesis parents[b, w].

        One hypothesis may become several. There are then W times as many places, so there is room for all tokens.
        """
        batch_size, width = parents_BW.shape
        rows_BW = jnp.arange(batch_size)[:, None] * (len(self.lengths) // batch_size) + parents_BW
        lengths_R = self.lengths[rows_BW.reshape(-1)]
        if not self.n_places:
            by_row = (self.blocks, self.positions)
            blocks, positions = jax.tree.map(lambda x: x[rows_BW.reshape(-1)], by_row)
            return Cache(blocks, lengths_R, self.source, positions)
        if self.reads_BWC is not None:
            reads_BWC = self.reads_BWC[jnp.arange(batch_size)[:, None], parents_BW]
            return dataclasses.replace(self, lengths=lengths_R, reads_BWC=reads_BWC)
        if width == 1:
            return self
        n_places = width * self.n_places
        indices = jnp.broadcast_to(jnp.arange(n_places)[None], (batch_size, n_places))
        reads = indices[:, None] < lengths_R.reshape(batch_size, width, 1)
        return dataclasses.replace(self.with_places(n_places), lengths=lengths_R, reads_BWC=reads, indices_BC=indices)

    def with_places(self, n_places: int) -> "Cache":
        """Returns the cache with so many places, which must include all that a hypothesis reads."""
        if not self.n_places or n_places == self.n_places:
            return self
        more = max(n_places - self.n_places, 0)

        def resized(x: jax.Array, axis: int) -> jax.Array:
            widths = [(0, more if axis == i else 0) for i in range(x.ndim)]
            return jax.lax.slice_in_dim(jnp.pad(x, widths), 0, n_places, axis=axis)

        blocks, walks = jax.tree.map(lambda x: resized(x, 2), (self.blocks, self.walks_BMCJ))
        reads, indices = (None if x is None else resized(x, x.ndim - 1) for x in (self.reads_BWC, self.indices_BC))
        return Cache(blocks, self.lengths, self.source, self.positions, walks, reads, indices, n_places)
