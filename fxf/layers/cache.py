"""The decoding cache, and how the hypotheses of a beam share it.

A prompt's cache has C slots; a slot holds what the layers keep of one token. Greedy decoding and sampling have one
hypothesis, whose token l has slot l. The hypotheses of a beam share the slots: `reads[b, w, c]` says whether hypothesis
w reads slot c. A new token goes to a slot that no hypothesis reads. When hypotheses branch, `select` selects rows of
`reads` and copies no keys. Most hypotheses differ only in their newest tokens, so a beam needs few more slots than one
hypothesis. Recurrent states belong to a row and are selected with it.

A single hypothesis that runs past the last slot rolls: token l has slot l modulo C, until another overwrites it.
"""

from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from fxf.layers.layer import Memory, Places, Slots, Table

UNREAD = 2**30  # the order of an empty slot, after all tokens


class Cache(flax.struct.PyTreeNode):
    """The state of decoding B prompts with W hypotheses each, in R = B · W rows.

    Attributes:
      layers: what the layers keep, a tree of `Slots`, of `Memory`, and of arrays [R, …].
      lengths: numbers of tokens read so far, int32 [R].
      given: the positions of all tokens of a row, [R, T], if the prompts give them; None for 0, 1, …
      order_BC: the index, in its hypothesis, of the token in each slot, int32; None if token l has slot l.
      reads_BWC: whether a hypothesis reads a slot, bool; None if each prompt has one hypothesis.
      rolling: whether there are fewer slots than tokens; the newest tokens have them.
    """

    layers: Any
    lengths: jax.Array
    given: jax.Array | None = None
    order_BC: jax.Array | None = None
    reads_BWC: jax.Array | None = None
    rolling: bool = flax.struct.field(pytree_node=False, default=False)

    @property
    def n_slots(self) -> int:
        """C; 0 if no layer has slots."""
        slots = (x for x in jax.tree.leaves(self.layers, is_leaf=_is_kept) if isinstance(x, Slots))
        return next((x.shape[-2] for x in jax.tree.leaves(next(slots, None))), 0)

    @property
    def can_rewind(self) -> bool:
        """Whether smaller `lengths` remove tokens (one hypothesis, not rolling), because slots hold everything."""
        return all(map(_is_kept, jax.tree.leaves(self.layers, is_leaf=_is_kept)))

    def table(self, positions_of: Callable[[jax.Array, jax.Array | None], jax.Array], n_new: int = 1) -> Table | None:
        """Returns the table that assigns slots to each row's new tokens; None if no layer has slots.

        Args:
          positions_of: returns the positions of tokens from their indices and `given`.
          n_new: the number of new tokens of each row; 1 unless the cache `can_rewind`.
        """
        if not self.n_slots:
            return None
        if self.order_BC is not None and self.reads_BWC is not None:
            return self._of_beam(positions_of, self.order_BC, self.reads_BWC)
        slots_1C, newest_B1 = jnp.arange(self.n_slots)[None], self.lengths[:, None]
        if not self.rolling:  # token l has slot l
            places = Places(positions_of(slots_1C, self.given), slots_1C)
            return Table(places, newest_B1 + jnp.arange(n_new)[None])
        # Slot c has the newest token whose index is c modulo C; below 0 it is still empty.
        order_BC = newest_B1 - (newest_B1 - slots_1C) % self.n_slots
        positions_BC = positions_of(jnp.maximum(order_BC, 0), self.given)
        places = Places(positions_BC, jnp.where(order_BC < 0, UNREAD, order_BC))
        return Table(places, newest_B1 % self.n_slots, by_index=False)

    def _of_beam(self, positions_of: Callable, order_BC: jax.Array, reads_BWC: jax.Array) -> Table:
        """Returns the table that assigns the new token of each hypothesis a slot that no hypothesis reads."""
        width = reads_BWC.shape[1]
        # top_k returns the first of equal elements. If too few slots are free, its last ones are in use.
        is_free_BC = ~reads_BWC.any(axis=1)
        at_BW = jax.lax.top_k(is_free_BC.astype(jnp.float32), width)[1]
        reads_BWC = reads_BWC | (at_BW[..., None] == jnp.arange(self.n_slots)[None, None])
        rows_B1, lengths_BW = jnp.arange(at_BW.shape[0])[:, None], self.lengths.reshape(at_BW.shape)
        order_BC = order_BC.at[rows_B1, at_BW].set(lengths_BW)
        given = None if self.given is None else self.given[::width]
        return Table(Places(positions_of(order_BC, given), order_BC), at_BW, reads_BWC, by_index=False)

    def select(self, parents_BW: jax.Array) -> "Cache":
        """Returns the cache of W hypotheses for each prompt, where hypothesis w continues hypothesis parents[b, w].

        If one hypothesis becomes several, the slots become W times as many, with room for all tokens.
        """
        batch_size, width = parents_BW.shape
        first_R1 = jnp.arange(batch_size)[:, None] * (self.lengths.shape[0] // batch_size)
        rows_R = (first_R1 + parents_BW).reshape(-1)
        layers = _map_layers(lambda x: x, lambda x_R: x_R[rows_R], self.layers)
        lengths_R, given = self.lengths[rows_R], None if self.given is None else self.given[rows_R]
        selected = self.replace(layers=layers, lengths=lengths_R, given=given)
        if self.reads_BWC is not None:
            return selected.replace(reads_BWC=self.reads_BWC[jnp.arange(batch_size)[:, None], parents_BW])
        if not self.n_slots:
            return selected
        n_slots = width * self.n_slots
        order_BC = jnp.broadcast_to(jnp.arange(n_slots)[None], (batch_size, n_slots))
        reads_BWC = order_BC[:, None] < lengths_R.reshape(batch_size, width, 1)
        return selected.with_slots(n_slots).replace(order_BC=order_BC, reads_BWC=reads_BWC)

    def with_slots(self, n_slots: int) -> "Cache":
        """Returns the cache resized to this many slots, which must include all that a hypothesis reads."""
        if n_slots == self.n_slots or not self.n_slots:
            return self

        def resized(x: jax.Array, axis: int = -1) -> jax.Array:
            more = [(0, n_slots - self.n_slots if i == axis % x.ndim else 0, 0) for i in range(x.ndim)]
            return jax.lax.pad(x, jnp.zeros((), x.dtype), more)  # negative padding removes slots

        layers = _map_layers(lambda x: resized(x, -2), lambda x: x, self.layers)
        order_BC, reads_BWC = jax.tree.map(resized, (self.order_BC, self.reads_BWC))
        return self.replace(layers=layers, order_BC=order_BC, reads_BWC=reads_BWC)


def _is_kept(x: Any) -> bool:
    return isinstance(x, (Slots, Memory))


def _map_layers(of_slots: Any, of_rows: Any, layers: Any) -> Any:
    """Applies `of_slots` to arrays in slots and `of_rows` to arrays [R, …]; a source's memory stays as it is."""

    def change(x: Any) -> Any:
        return x if isinstance(x, Memory) else jax.tree.map(of_slots if isinstance(x, Slots) else of_rows, x)

    return jax.tree.map(change, layers, is_leaf=_is_kept)
