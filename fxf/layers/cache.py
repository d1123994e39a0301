"""What decoding remembers, and how the hypotheses of a beam share it.

Greedy decoding and sampling have one hypothesis a prompt, so a place of the cache is the order of a token in its row.
The W hypotheses of a beam share the keys and values that they have read: a prompt's cache has C places for each
hypothesis, one after the other, and `ancestors` says whose place holds a hypothesis's token. When hypotheses branch,
`select` writes new ancestors and copies no keys.
"""

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from fxf.layers.config import TransformerConfig


@flax.struct.dataclass
class KeysValues:
    """The keys and values of one attention layer for C positions, each [B, G, C, K]; G heads, or groups of heads."""

    keys: jax.Array
    values: jax.Array


def empty_keys_values(config: TransformerConfig, batch_size: int, length: int, dtype: Any) -> KeysValues:
    """Returns keys and values with room for `length` positions a row."""
    zeros = jnp.zeros((batch_size, config.n_groups, length, config.d_model // config.n_heads), dtype)
    return KeysValues(zeros, zeros)


def write(cache: KeysValues, places_BT: jax.Array, new: KeysValues) -> KeysValues:
    """Returns the cache with new keys and values, [B, G, T, K], at each row's places."""
    rows_B1 = jnp.arange(cache.keys.shape[0])[:, None]
    return KeysValues(
        keys=cache.keys.at[rows_B1, :, places_BT].set(new.keys.transpose(0, 2, 1, 3)),
        values=cache.values.at[rows_B1, :, places_BT].set(new.values.transpose(0, 2, 1, 3)),
    )


@flax.struct.dataclass
class Cache:
    """What decoding remembers of B prompts with W hypotheses each, R = B · W rows.

    Attributes:
      blocks: what the attention of each block remembers: by row, or, with `ancestors`, by prompt and place.
      lengths: tokens read so far, int32 [R].
      source: what a prompt's rows attend to and never change.
      ancestors: of hypothesis w, the hypothesis that read its token at position c, int32 [B, W, C]; None where each row
        remembers for itself.
      positions: that the prompt gives for all the tokens that its rows will hold, in their order: [B, C]; None for
        0, 1, …
      made_BHC1: the positions that the tokens themselves make, by place; None where they make none.
    """

    blocks: Any
    lengths: jax.Array
    source: Any = None
    ancestors: jax.Array | None = None
    positions: jax.Array | None = None
    made_BHC1: jax.Array | None = None

    def as_tokens(self, x_R: jax.Array) -> jax.Array:
        """Returns what a step has of each row as tokens [B, T] of a prompt; of rows that share nothing, as [R, 1]."""
        return x_R.reshape((self.lengths.shape[0], 1) if self.ancestors is None else self.ancestors.shape[:2])

    def order(self) -> jax.Array:
        """Returns the order of the token at each place in its row, int32 [1, places]."""
        assert self.ancestors is not None
        _, width, room = self.ancestors.shape
        return jnp.tile(jnp.arange(room), width)[None]

    def places(self, order_BT: jax.Array) -> jax.Array:
        """Returns the places of new tokens, one of each hypothesis, or any of the only one: int32 [B, T]."""
        assert self.ancestors is not None
        _, width, room = self.ancestors.shape
        return order_BT + jnp.arange(width)[None] * room

    def own_places(self, bias_BHTC: jax.Array) -> jax.Array:
        """Returns the bias with -inf at the places that are not of a token's hypothesis and its ancestors."""
        assert self.ancestors is not None
        _, width, room = self.ancestors.shape
        if width == 1:
            return bias_BHTC
        own_BWWC = self.ancestors[:, :, None] == jnp.arange(width)[None, None, :, None]
        return jnp.where(own_BWWC.reshape(-1, 1, width, width * room), bias_BHTC, -jnp.inf)

    def made_before(self) -> jax.Array:
        """Returns the position that the newest token of each row has made, [R, H]; 0 where there is none."""
        assert self.ancestors is not None and self.made_BHC1 is not None
        batch_size, width, room = self.ancestors.shape
        last_BW1 = jnp.maximum(self.lengths - 1, 0).reshape(batch_size, width, 1)
        owner_BW1 = jnp.take_along_axis(self.ancestors, last_BW1, axis=2)
        places_B1W1 = (owner_BW1 * room + last_BW1)[:, None]
        found_BHW1 = jnp.take_along_axis(self.made_BHC1, places_B1W1, axis=2)
        found_RH = found_BHW1[..., 0].transpose(0, 2, 1).reshape(batch_size * width, -1)
        return jnp.where(self.lengths[:, None] > 0, found_RH, 0)

    def make(self, places_BT: jax.Array, positions_BHT: jax.Array) -> "Cache":
        """Returns the cache with positions that new tokens make."""
        assert self.made_BHC1 is not None
        rows_B1 = jnp.arange(self.made_BHC1.shape[0])[:, None]
        made_BHC1 = self.made_BHC1.at[rows_B1, :, places_BT, 0].set(positions_BHT.transpose(0, 2, 1))
        return self.replace(made_BHC1=made_BHC1)  # type: ignore[attr-defined]

    def select(self, parents_BW: jax.Array) -> "Cache":
        """Returns the cache of W hypotheses a prompt, of which number w goes on from hypothesis parents[b, w] of this.

        W may be another than before, but not smaller.
        """
        batch_size, width = parents_BW.shape
        rows_BW = jnp.arange(batch_size)[:, None] * (self.lengths.shape[0] // batch_size) + parents_BW
        lengths_BW = self.lengths[rows_BW]
        lengths_R = lengths_BW.reshape(-1)
        if self.ancestors is None:
            by_row = (self.blocks, self.positions)
            blocks, positions = jax.tree.map(lambda x: x[rows_BW.reshape(-1)], by_row)
            return Cache(blocks, lengths_R, self.source, positions=positions)
        room = self.ancestors.shape[2]
        more = ((0, 0), (0, 0), (0, (width - self.ancestors.shape[1]) * room), (0, 0))
        blocks, made_BHC1 = jax.tree.map(lambda x: jnp.pad(x, more), (self.blocks, self.made_BHC1))
        before_BWC = jnp.arange(room)[None, None] < lengths_BW[..., None]
        inherited_BWC = self.ancestors.reshape(len(self.lengths), room)[rows_BW]
        ancestors = jnp.where(before_BWC, inherited_BWC, jnp.arange(width)[None, :, None])
        return Cache(blocks, lengths_R, self.source, ancestors, self.positions, made_BHC1)
