"""The cache of decoding, and how the hypotheses of a beam share it.

A prompt's cache has W · L places: L for the tokens of each of its W hypotheses, one hypothesis after the other.
Hypothesis w writes token l at the cache index w · L + l. Greedy decoding and sampling have one hypothesis, so there the
cache index is l. The hypotheses of a beam read each other's keys and values: `ancestors[b, w, l]` is the hypothesis
that wrote token l of hypothesis w. When hypotheses branch, `select` writes new ancestors and copies no keys.
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


def write(cache: KeysValues, cache_indices_BT: jax.Array, new: KeysValues) -> KeysValues:
    """Returns the cache with new keys and values, [B, G, T, K], at the cache indices of each row."""
    rows_B1 = jnp.arange(cache.keys.shape[0])[:, None]
    return KeysValues(
        keys=cache.keys.at[rows_B1, :, cache_indices_BT].set(new.keys.transpose(0, 2, 1, 3)),
        values=cache.values.at[rows_B1, :, cache_indices_BT].set(new.values.transpose(0, 2, 1, 3)),
    )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Cache:
    """The state of decoding B prompts with W hypotheses each, in R = B · W rows.

    Attributes:
      blocks: the cache of each block's attention. Its first axis is B with `ancestors`, and R without.
      lengths: numbers of tokens read so far, int32 [R].
      source: the memory of a source, which all rows of a prompt read.
      ancestors: ancestors[b, w, l] is the hypothesis that wrote token l of hypothesis w, int32 [B, W, L]; None if each
        row has a cache of its own.
      positions: the positions of all tokens of a prompt, [B, L], if the prompts give them; None for 0, 1, … Its first
        axis is R without `ancestors`.
      walks_BMCJ: the states of the walks along the tokens, which hold the tokens' positions; None if the kind of
        positions makes none from tokens.
    """

    blocks: Any
    lengths: jax.Array
    source: Any = None
    ancestors: jax.Array | None = None
    positions: jax.Array | None = None
    walks_BMCJ: jax.Array | None = None

    def as_tokens(self, x_R: jax.Array) -> jax.Array:
        """Returns the elements of the rows as [B, W]; as [R, 1] if each row has a cache of its own."""
        return x_R.reshape((self.lengths.shape[0], 1) if self.ancestors is None else self.ancestors.shape[:2])

    def token_indices(self) -> jax.Array:
        """Returns the index in its row of the token at each cache index, int32 [1, C]."""
        assert self.ancestors is not None
        _, width, room = self.ancestors.shape
        return jnp.tile(jnp.arange(room), width)[None]

    def cache_indices(self, indices_BT: jax.Array) -> jax.Array:
        """Returns the cache indices of new tokens, int32 [B, T]: one token of each hypothesis, or T of the only one."""
        assert self.ancestors is not None
        _, width, room = self.ancestors.shape
        return indices_BT + jnp.arange(width)[None] * room

    def mask_other_hypotheses(self, bias_BHTC: jax.Array) -> jax.Array:
        """Returns the bias with -inf for the keys that neither a query's hypothesis nor its ancestors wrote."""
        assert self.ancestors is not None
        _, width, room = self.ancestors.shape
        if width == 1:
            return bias_BHTC
        own_BWWL = self.ancestors[:, :, None] == jnp.arange(width)[None, None, :, None]
        return jnp.where(own_BWWL.reshape(-1, 1, width, width * room), bias_BHTC, -jnp.inf)

    def last_states(self) -> jax.Array:
        """Returns the state of each row's walk at its newest token, [R, M, J]; 0 if there is no token."""
        assert self.ancestors is not None and self.walks_BMCJ is not None
        batch_size, width, room = self.ancestors.shape
        last_BW1 = jnp.maximum(self.lengths - 1, 0).reshape(batch_size, width, 1)
        owner_BW1 = jnp.take_along_axis(self.ancestors, last_BW1, axis=2)
        indices_B1W1 = (owner_BW1 * room + last_BW1)[:, None]
        found_BMWJ = jnp.take_along_axis(self.walks_BMCJ, indices_B1W1, axis=2)
        found_RMJ = found_BMWJ.transpose(0, 2, 1, 3).reshape(batch_size * width, *found_BMWJ.shape[1::2])
        return jnp.where(self.lengths[:, None, None] > 0, found_RMJ, 0)

    def write_states(self, cache_indices_BT: jax.Array, states_BMTJ: jax.Array) -> "Cache":
        """Returns the cache with the states of the walks at new tokens."""
        assert self.walks_BMCJ is not None
        rows_B1 = jnp.arange(self.walks_BMCJ.shape[0])[:, None]
        walks_BMCJ = self.walks_BMCJ.at[rows_B1, :, cache_indices_BT].set(states_BMTJ.transpose(0, 2, 1, 3))
        return dataclasses.replace(self, walks_BMCJ=walks_BMCJ)

    def select(self, parents_BW: jax.Array) -> "Cache":
        """Returns the cache of W hypotheses for each prompt, where hypothesis w continues hypothesis parents[b, w].

        W may be larger than before, but not smaller.
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
        blocks, walks = jax.tree.map(lambda x: jnp.pad(x, more), (self.blocks, self.walks_BMCJ))
        before_BWL = jnp.arange(room)[None, None] < lengths_BW[..., None]
        inherited_BWL = self.ancestors.reshape(len(self.lengths), room)[rows_BW]
        ancestors = jnp.where(before_BWL, inherited_BWL, jnp.arange(width)[None, :, None])
        return Cache(blocks, lengths_R, self.source, ancestors, self.positions, walks)
