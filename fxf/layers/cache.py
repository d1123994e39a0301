"""The cache of decoding, and how the hypotheses of a beam share it.

A prompt's cache has C slots, each for what layers keep of one token. Greedy decoding and sampling have one hypothesis,
whose token l has slot l. The hypotheses of a beam share the slots: `reads[b, w, c]` says whether hypothesis w reads
slot c. A new token goes to a slot that no hypothesis reads. When hypotheses branch, `select` selects rows of `reads`
and copies no keys. As most hypotheses differ in their newest tokens only, they need little more slots than one
hypothesis alone. The states of layers that keep no tokens belong to a row and are selected with it.
"""

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from fxf.layers.layer import Memory, Places, Slots, Table


class Cache(flax.struct.PyTreeNode):
    """The state of decoding B prompts with W hypotheses each, in R = B · W rows.

    Attributes:
      layers: what the layers keep, a tree of `Slots`, of `Memory`, and of arrays [R, …].
      lengths: numbers of tokens read so far, int32 [R].
      places: of the tokens in the slots, each array [B, C]; None if no layer has slots.
      given: the positions of all tokens of a row, [R, T], if the prompts give them; None for 0, 1, …
      reads_BWC: whether a hypothesis reads a slot, bool; None if each prompt has one hypothesis.
    """

    layers: Any
    lengths: jax.Array
    places: Places | None = None
    given: jax.Array | None = None
    reads_BWC: jax.Array | None = None

    @property
    def n_slots(self) -> int:
        """C; 0 if no layer has slots."""
        return 0 if self.places is None else self.places.positions.shape[1]

    def table(self, new: Places) -> Table | None:
        """Returns the table in which one new token of each row has a slot; None if no layer has slots.

        Args:
          new: the places of the tokens, each array [R, 1].
        """
        if self.places is None:
            return None
        at_BT, reads_BWC = self.lengths[:, None], self.reads_BWC
        if reads_BWC is not None:
            # Of equal elements, top_k returns the first. If too few slots are free, the last ones are not.
            is_free_BC = ~reads_BWC.any(axis=1)
            at_BT = jax.lax.top_k(is_free_BC.astype(jnp.float32), reads_BWC.shape[1])[1]
            reads_BWC = reads_BWC | (at_BT[..., None] == jnp.arange(self.n_slots)[None, None])
        rows_B1 = jnp.arange(at_BT.shape[0])[:, None]
        put = lambda old_BC, new_R1: old_BC.at[rows_B1, at_BT].set(new_R1.reshape(at_BT.shape))  # noqa: E731
        return Table(jax.tree.map(put, self.places, new), at_BT, reads_BWC)

    def is_full(self) -> jax.Array:
        """Returns whether there is no slot for another token of each hypothesis, bool [B], or [1] for all prompts."""
        if self.places is None:
            return jnp.zeros(1, bool)
        if self.reads_BWC is None:
            return self.lengths >= self.n_slots
        return (~self.reads_BWC.any(axis=1)).sum(axis=1) < self.reads_BWC.shape[1]

    def select(self, parents_BW: jax.Array) -> "Cache":
        """Returns the cache of W hypotheses for each prompt, where hypothesis w continues hypothesis parents[b, w].

        One hypothesis may become several. There are then W times as many slots, so there is room for all tokens.
        """
        batch_size, width = parents_BW.shape
        rows_R = (jnp.arange(batch_size)[:, None] * (self.lengths.shape[0] // batch_size) + parents_BW).reshape(-1)
        layers = _map_layers(lambda x: x, lambda x_R: x_R[rows_R], self.layers)
        lengths_R, given = self.lengths[rows_R], None if self.given is None else self.given[rows_R]
        selected = self.replace(layers=layers, lengths=lengths_R, given=given)
        if self.reads_BWC is not None:
            return selected.replace(reads_BWC=self.reads_BWC[jnp.arange(batch_size)[:, None], parents_BW])
        if width == 1 or self.places is None:
            return selected
        n_slots = width * self.n_slots
        reads_BWC = jnp.arange(n_slots)[None, None] < lengths_R.reshape(batch_size, width, 1)
        return selected.with_slots(n_slots).replace(reads_BWC=reads_BWC)

    def with_slots(self, n_slots: int) -> "Cache":
        """Returns the cache with so many slots, which must include all that a hypothesis reads."""
        if self.places is None or n_slots == self.n_slots:
            return self
        more = max(n_slots - self.n_slots, 0)

        def resized(x: jax.Array, axis: int = -1) -> jax.Array:
            axis = axis % x.ndim
            widths = [(0, more if axis == i else 0) for i in range(x.ndim)]
            return jax.lax.slice_in_dim(jnp.pad(x, widths), 0, n_slots, axis=axis)

        layers = _map_layers(lambda x: resized(x, -2), lambda x: x, self.layers)
        places, reads_BWC = jax.tree.map(resized, (self.places, self.reads_BWC))
        return self.replace(layers=layers, places=places, reads_BWC=reads_BWC)


def begun(layers: Any, lengths_R: jax.Array, places: Places, n_slots: int, given: jax.Array | None = None) -> Cache:
    """Returns the cache after prompts, with room for so many tokens in each row.

    Args:
      layers: what the layers keep after reading the prompts.
      places: of the prompts' tokens, each array [R, T] or [1, T], or None as `Places` has it.
      given: the positions of all tokens of a row, [R, T], if the prompts give them.
    """
    if not any(isinstance(x, Slots) for x in jax.tree.leaves(layers, is_leaf=_is_kept)):
        return Cache(layers, lengths_R, None, given)
    shape = (lengths_R.shape[0], places.positions.shape[1])
    full = jax.tree.map(lambda x: jnp.broadcast_to(x, shape), places.replace(causal=False))
    return Cache(layers, lengths_R, full, given).with_slots(max(n_slots, shape[1]))


def _is_kept(x: Any) -> bool:
    return isinstance(x, (Slots, Memory))


def _map_layers(of_slots: Any, of_rows: Any, layers: Any) -> Any:
    """Returns the tree with `of_slots` of what is in slots, `of_rows` of arrays [R, …], and sources as they are."""

    def change(x: Any) -> Any:
        return x if isinstance(x, Memory) else jax.tree.map(of_slots if isinstance(x, Slots) else of_rows, x)

    return jax.tree.map(change, layers, is_leaf=_is_kept)
