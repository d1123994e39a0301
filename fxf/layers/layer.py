"""The contract of a layer, and the context that a layer reads.

Attention of any kind, feed-forward layers, recurrences, routers, and blocks that hold other layers are all layers:
frozen dataclasses, whose fields are keys of the config, with two pure functions.

    spec() -> {name: Weight}                          the table of their weights
    apply(params, x, context) -> (y, context)         what they compute; of this context, cache and carry are used

Letters of shapes: R rows, T tokens, B prompts, C slots of a cache, D d_model.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import flax.struct
import jax
import jax.extend.core
import jax.numpy as jnp

from fxf.base.errors import UserError
from fxf.base.weights import Params, Spec


class Places(flax.struct.PyTreeNode):
    """Positions, order and documents of tokens. A token sees those of its document whose order is not above its own.

    Each array is [R, T], or [1, T] where all rows have the same.

    Attributes:
      positions: what positional encodings and windows read, int32 or float32.
      order: int32: 0, 1, … in a decoder; equal among tokens that see each other, as in a prefix. None: all see all.
      documents: int32: 1, 2, … by the document of a token in its row; 0 on padding and in empty slots, which only
        padding sees. None: each row is one document without padding.
      causal: whether the order is known, at tracing, to be 0, 1, … in each row, so that a kernel needs no mask for it.
        It is false once tokens have been picked.
      elsewhere: whether these queries read another sequence, where distances mean nothing.
    """

    positions: jax.Array
    order: jax.Array | None = None
    documents: jax.Array | None = None
    causal: bool = flax.struct.field(pytree_node=False, default=False)
    elsewhere: bool = flax.struct.field(pytree_node=False, default=False)

    def pick(self, f: Callable[[jax.Array], jax.Array]) -> "Places":
        """Applies f to each array."""
        return jax.tree.map(f, self.replace(causal=False))

    def once(self, layer: Any, make: Callable[[], jax.Array]) -> jax.Array:
        """Returns `make()`, computed once for all blocks that share this layer.

        XLA on a CPU does not merge equal masks of several blocks: a small model's step took 6 % longer.
        """
        trace = jax.extend.core.get_opaque_trace_state(convention="nnx")  # arrays of another trace may not be read here
        made = self.__dict__.setdefault("_made", {})
        if id(layer) not in made or made[id(layer)][0] != trace:
            made[id(layer)] = trace, make(), layer  # holding the layer keeps its id from being reused
        return made[id(layer)][1]

    def sees(self, keys: "Places", window: int = 0) -> jax.Array | None:
        """Returns which keys these queries see, bool [R, T, C], or [1, T, C]; None if they see all.

        Args:
          window: they see keys at a distance below this; 0: at any.
        """
        seen = []
        if self.order is not None and keys.order is not None:
            seen.append(self.order[:, :, None] >= keys.order[:, None])
        if window:
            seen.append(jnp.abs(self.positions[:, :, None] - keys.positions[:, None]) < window)
        if self.documents is not None or keys.documents is not None:
            mine, theirs = (jnp.ones((1, 1), jnp.int32) if x is None else x for x in (self.documents, keys.documents))
            seen.append(mine[:, :, None] == theirs[:, None])
        return functools.reduce(jnp.logical_and, seen) if seen else None


class Slots(flax.struct.PyTreeNode):
    """What a layer caches for each token: a tree of arrays [B, …, C, n] with C slots, shared by a prompt's rows."""

    entries: Any


class Memory(flax.struct.PyTreeNode):
    """What a layer caches of another sequence: a tree of arrays [B, …], shared by a prompt's rows, and its places."""

    entries: Any
    places: Places


class Table(flax.struct.PyTreeNode):
    """Which token is in which slot of a cache.

    Attributes:
      places: of the tokens in the slots, each array [B, C].
      at_BT: the slots of the new tokens, int32; W tokens where a prompt has W rows of one token.
      reads_BWC: whether a row of a prompt reads a slot, bool; None if each prompt has one row.
      by_index: whether token l is in slot l: no beam has branched, and no text has run past the last slot.
    """

    places: Places
    at_BT: jax.Array
    reads_BWC: jax.Array | None = None
    by_index: bool = flax.struct.field(pytree_node=False, default=True)


class Context(flax.struct.PyTreeNode):
    """What a layer may read besides its input, and where it returns its cache.

    Attributes:
      places: those of the tokens of x.
      tokens: the tokens themselves, int32 [R, T], or the vectors [R, T, F] in their place; None if they are unknown.
      cache: what the layer cached of earlier tokens. None: no cache is used. {}: there are no earlier tokens. Otherwise
        the layer's own tree of arrays: `Slots` for each token, and arrays [R, …] for the state of each row. Zeros mean
        empty.
      table: the tokens of the slots, if a cache holds earlier tokens.
      carry: arrays [R, T, …] by name, which earlier layers leave for later ones. When a model reads a whole batch, it
        begins with the batch's arrays `carry/NAME`; in prefill and decoding steps it begins empty.
      source: the vectors that cross-attention reads, [B, S, D], and their places. None in decoding steps, which read
        them from the cache.
      rng: a random key in training; None elsewhere.
    """

    places: Places
    tokens: jax.Array | None = None
    cache: Any = None
    table: Table | None = None
    carry: Mapping[str, jax.Array] = flax.struct.field(default_factory=dict)
    source: tuple[jax.Array, Places] | None = None
    rng: jax.Array | None = None

    @property
    def real(self) -> jax.Array:
        """Which tokens are not padding, bool [R, T] or [1, T]."""
        documents = self.places.documents
        return jnp.ones((1, self.places.positions.shape[1]), bool) if documents is None else documents > 0

    def by_prompt(self, x: jax.Array) -> jax.Array:
        """Joins the W rows of each prompt: [R, T, …] to [B, W · T, …]."""
        return x if self.reads is None else x.reshape(len(self.reads), -1, *x.shape[2:])

    def pick(self, f: Callable[[jax.Array], jax.Array]) -> "Context":
        """Returns the context of the tokens that f picks from arrays [R, T, …] or [1, T]; cache and table stay.

        With one hypothesis for each prompt, f also picks the slots of the new tokens.
        """
        (tokens, carry), table = jax.tree.map(f, (self.tokens, dict(self.carry))), self.table
        if table is not None and table.reads_BWC is None:
            table = table.replace(at_BT=f(table.at_BT))
        return self.replace(places=self.places.pick(f), tokens=tokens, table=table, carry=carry)

    @property
    def queries(self) -> Places:
        """The places of the tokens, by prompt."""
        return self.places if self.reads is None else self.places.pick(self.by_prompt)

    @property
    def reads(self) -> jax.Array | None:
        """Which slots each row of a prompt reads, bool [B, W, C]; None if each prompt has one row."""
        return None if self.table is None else self.table.reads_BWC


def whole_rows(length: int) -> Context:
    """Returns a causal context of whole rows of `length` tokens without padding."""
    indices_1T = jnp.arange(length)[None]
    return Context(Places(indices_1T, indices_1T, causal=True))


class Layer(Protocol):
    """A frozen dataclass whose fields are its config keys, with two pure functions.

    A field with the name of a key of the `model` section has the model's value, unless `model.layers.NAME` has another;
    a field `config` holds the whole section, and a field `vocab_size` the number of tokens.

    A class may set these attributes, which are True by default:
      cached: whether `apply` caches what later tokens need of earlier ones, or needs nothing of them. A model with a
        layer that does not decodes by the whole sequence: slower, with the same logits.
      by_document: whether tokens read only their own document, where a row packs several.
      by_row: whether rows of a batch are independent, in terms of the objective too.
    """

    def spec(self) -> Spec:
        """Returns the table of the layer's weights. Raises a UserError if its keys do not fit each other."""
        ...

    def apply(self, params: Params, x: Any, context: Context) -> tuple[Any, Context]:
        """Returns y, in the type of x, and the context with the layer's cache and carry after these tokens.

        In a block x and y are vectors [R, T, D]. Padding must not change what other tokens read.
        """
        ...


def remember(context: Context, new: Any) -> tuple[Any, Places, Any]:
    """Returns the entries that tokens may attend to, their places, and the layer's cache with the new entries.

    Args:
      new: a tree of the entries of the new tokens, arrays [B, …, T, n].
    """
    if not context.cache:
        return new, context.places, None if context.cache is None else Slots(new)
    assert context.table is not None
    rows_B1, at_BT = jnp.arange(context.table.at_BT.shape[0])[:, None], context.table.at_BT

    def written(old: jax.Array, new: jax.Array) -> jax.Array:
        between = (slice(None),) * (old.ndim - 3)
        return old.at[(rows_B1, *between, at_BT)].set(jnp.moveaxis(new, -2, 1).astype(old.dtype))

    entries = jax.tree.map(written, context.cache.entries, new)
    return entries, context.table.places, Slots(entries)


def sort_slots(memory: Any, keys: Places, context: Context) -> tuple[Any, Places, Context]:
    """Returns entries and places from `remember`, and the context, with the slots in token order.

    Slots are out of order only in a beam, whose hypotheses take any free slot, and in a cache that rolls.

    Raises:
      UserError: tokens have no order, because all see all.
    """
    if keys.order is None:
        raise UserError("model.attention: this kind needs an order of tokens; where all see all, they have none")
    if context.table is None or context.table.by_index:
        return memory, keys, context
    at_BC = jnp.argsort(keys.order)

    def sorted_slots(x: jax.Array) -> jax.Array:
        return jnp.take_along_axis(x, at_BC.reshape(len(x), *(1,) * (x.ndim - 3), -1, 1), -2)

    memory = jax.tree.map(sorted_slots, memory)
    reads_BWC = jax.tree.map(lambda x_BWC: jnp.take_along_axis(x_BWC, at_BC[:, None], -1), context.table.reads_BWC)
    keys = keys.pick(lambda x_BC: jnp.take_along_axis(x_BC, at_BC, -1))
    return memory, keys, context.replace(table=context.table.replace(places=keys, reads_BWC=reads_BWC))
