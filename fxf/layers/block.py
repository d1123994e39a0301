"""Blocks: layers that are joined to the residual stream; and stacks of blocks.

Seed 004, "DecoderBlock Definition" and "inspirational idea"; seeds 000 and 003.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from fxf.base.config import Choices
from fxf.base.errors import UserError
from fxf.base.weights import Params, Spec
from fxf.layers.config import TransformerConfig
from fxf.layers.dropout import dropout, split
from fxf.layers.layer import Context, Layer
from fxf.layers.named import named
from fxf.layers.normalization import beside, normalization_spec, normalize

# What a block keeps in memory for the backward pass, which recomputes the rest. 'none' recomputes nothing.
REMAT = {
    "full": jax.checkpoint_policies.nothing_saveable,
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
}


@dataclasses.dataclass(frozen=True)
class Block:
    """Layers by name, each with a norm. A kind of block is a subclass, whose `apply` joins them to the stream.

    The residual stream is [R, T, D], or what `start` makes of that.

    Attributes:
      norms: the endings of the names of each layer's norms.
    """

    config: TransformerConfig
    layers: dict[str, Layer]
    norms: ClassVar[tuple[str, ...]] = ("norm",)

    def spec(self) -> Spec:
        """Returns the weights of the layers and of their norms."""
        norms = [f"{name}_{norm}" for norm in self.norms for name in self.layers]
        specs = {name: layer.spec() for name, layer in self.layers.items()}
        return {**specs, **{name: normalization_spec(self.config) for name in norms}}

    def apply(self, params: Params, x: Any, context: Context) -> tuple[Any, Context]:
        """Returns the residual stream after the block, and the context."""
        raise NotImplementedError

    def start(self, x: jax.Array) -> Any:
        """Returns the residual stream of vectors [R, T, D] before the first block."""
        return x

    def finish(self, x: Any) -> jax.Array:
        """Returns the vectors [R, T, D] of the residual stream after the last block."""
        return x

    def norm(self, params: Params, name: str, x: jax.Array, which: str = "norm") -> jax.Array:
        """Returns the vectors after a norm of the layer with this name."""
        if which == "norm" and self._normalizes_source(name):
            return x
        with jax.named_scope(name):
            return normalize(self.config, params[f"{name}_{which}"], x)

    def beside(self, params: Params, name: str, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns x and `norm` of it. On a GPU both gradients of x are summed in a kernel, if this x is read after."""
        if self._normalizes_source(name) or type(self).norm is not Block.norm:
            return x, self.norm(params, name, x)
        with jax.named_scope(name):
            return beside(self.config, params[f"{name}_norm"], x)

    def layer(self, params: Params, name: str, x: jax.Array, context: Context) -> tuple[jax.Array, Context]:
        """Returns the output of the layer with this name, and the context after it."""
        inner, _ = self._keys(name, context.rng)
        cache = None if context.cache is None else context.cache.get(name, {})
        given = context.replace(cache=cache, rng=inner)
        if context.source is not None and self._normalizes_source(name):
            source_BSD, places = context.source
            given = given.replace(source=(normalize(self.config, params[f"{name}_norm"], source_BSD), places))
        with jax.named_scope(name):
            answer = self.layers[name].apply(params[name], x, given)
        y, after = _checked(answer, x, self.layers[name])
        caches = None if context.cache is None else {**context.cache, name: after.cache}
        return y, context.replace(cache=caches, carry=after.carry)

    def dropout(self, name: str, y: jax.Array, context: Context) -> jax.Array:
        """Returns the output of the layer with this name after dropout."""
        return dropout(self._keys(name, context.rng)[1], y, self.config.dropout)

    def _normalizes_source(self, name: str) -> bool:
        return name == "cross_attention" and getattr(self.config, "cross_norm", "queries") == "source"

    def _keys(self, name: str, rng: jax.Array | None) -> list[jax.Array | None]:
        """Returns the key of a layer and that of its output's dropout.

        Those of the last layer are others, so that the usual blocks draw what they drew in earlier versions.
        """
        i, n = list(self.layers).index(name), len(self.layers)
        mine = (2 * i, 2 * i + 1) if i < n - 1 else (2 * i + 1, max(2 * i, 4))
        keys = split(rng, max(2 * n, 5))
        return [keys[j] for j in mine]


class PreNorm(Block):
    """X + F(N X), for one layer F after the other."""

    def apply(self, params: Params, x: Any, context: Context) -> tuple[Any, Context]:
        for name in self.layers:
            x, normalized = self.beside(params, name, x)
            y, context = self.layer(params, name, normalized, context)
            x = x + self.dropout(name, y, context)
        return x, context


class PostNorm(Block):
    """N(X + F X), for one layer F after the other."""

    def apply(self, params: Params, x: Any, context: Context) -> tuple[Any, Context]:
        for name in self.layers:
            y, context = self.layer(params, name, x, context)
            x = self.norm(params, name, x + self.dropout(name, y, context))
        return x, context


class Sandwich(Block):
    """X + M(F(N X)) with a second norm M, for one layer F after the other."""

    norms = ("norm", "post_norm")

    def apply(self, params: Params, x: Any, context: Context) -> tuple[Any, Context]:
        for name in self.layers:
            y, context = self.layer(params, name, self.norm(params, name, x), context)
            x = x + self.dropout(name, self.norm(params, name, y, "post_norm"), context)
        return x, context


class OutputNorm(Block):
    """X + N F(X) for one layer F after the other: the norm is of what a layer adds (OLMo et al. 2024, OLMo 2)."""

    def apply(self, params: Params, x: Any, context: Context) -> tuple[Any, Context]:
        for name in self.layers:
            y, context = self.layer(params, name, x, context)
            x = x + self.dropout(name, self.norm(params, name, y), context)
        return x, context


class Idea(Block):
    """X + FF(N Y), where Y is what the other layers make of X as in `PreNorm` (seed 004, "inspirational idea")."""

    def apply(self, params: Params, x: Any, context: Context) -> tuple[Any, Context]:
        *others, last = self.layers
        inner = x
        for name in others:
            y, context = self.layer(params, name, self.norm(params, name, inner), context)
            inner = inner + self.dropout(name, y, context)
        y, context = self.layer(params, last, self.norm(params, last, inner), context)
        return x + self.dropout(last, y, context), context


BLOCKS: Choices[type[Block]] = Choices(
    {"pre_norm": PreNorm, "post_norm": PostNorm, "sandwich": Sandwich, "output_norm": OutputNorm, "idea": Idea}
)


@dataclasses.dataclass(frozen=True)
class Stack:
    """Blocks one after the other. The weights of block i are '<i>'.

    Attributes:
      blocks: all of them, in order; equal ones may be one object.
      head, period: after the first `head` blocks, each block is of the same kind as the one `period` blocks before it.
        A loop (`config.scan_blocks`) has `period` blocks in a turn.
      shared: whether all turns have the weights of the first one.
      stream: the name of the residual stream after each block; blocks inside of a block have another.
    """

    config: TransformerConfig
    blocks: tuple[Layer, ...]
    head: int = 0
    period: int = 1
    shared: bool = False
    stream: str = "residual"

    def spec(self) -> Spec:
        blocks = self.blocks[: self.head + self.period] if self.shared else self.blocks
        specs = {id(block): block.spec() for block in blocks}
        return {str(i): specs[id(block)] for i, block in enumerate(blocks)}

    def apply(self, params: Params, x: Any, context: Context) -> tuple[Any, Context]:
        """Returns the residual stream after all blocks, and the context.

        With scan_blocks and no cache, the compiled program stacks the weights of turns and loops over one turn.
        Otherwise the program contains every block. A cache has a part for each, which decoding can update in place.
        """
        n, i, period, caches = len(self.blocks), 0, self.period, {}
        rngs = [None] * n if context.rng is None else jax.random.split(context.rng, n)
        # The weights of block i: of shared ones those of the first turn.
        own = [i if i < self.head or not self.shared else self.head + (i - self.head) % period for i in range(n)]
        kept = [None if context.cache is None else context.cache.get(str(i), {}) for i in range(n)]
        given = [(params[str(own[i])], kept[i], rngs[i]) for i in range(n)]

        def turn(state: Any, given: Any) -> tuple[Any, None]:
            """Applies the blocks of one turn of a loop that begins at block i."""
            x, after = state[0], context.replace(carry=state[1])
            for j, (weights, _, rng) in enumerate(given, i):
                with jax.named_scope(f"block_{j}"):  # the number of the first turn's block; later turns count on
                    x, after = self._apply_of(j)(weights, x, after.replace(rng=rng))
                    x = named(self.stream, x)
            return (x, after.carry), None

        while i < n:
            loops = self.config.scan_blocks and context.cache is None and i >= self.head
            starts = range(i, n - period + 1, period) if loops and (i - self.head) % period == 0 else ()
            turns, state = [given[start : start + period] for start in starts], (x, context.carry)
            # A turn that begins what later blocks carry on, or after which the stream has more, stands before the loop.
            if len(turns) > 1 and _shapes(jax.eval_shape(turn, state, turns[0])[0]) == _shapes(state):
                (x, carry), _ = jax.lax.scan(turn, state, jax.tree.map(lambda *leaves: jnp.stack(leaves), *turns))
                context, i = context.replace(carry=carry), i + len(turns) * period
                continue
            weights, cache, rng = given[i]
            with jax.named_scope(f"block_{i}"):
                x, after = self._apply_of(i)(weights, x, context.replace(cache=cache, rng=rng))
                x = named(self.stream, x)
            context, caches[str(i)] = context.replace(carry=after.carry), after.cache
            i += 1
        return x, context.replace(cache=None if context.cache is None else caches)

    def _apply_of(self, i: int) -> Callable[[Params, Any, Context], tuple[Any, Context]]:
        """Returns `apply` of block i, of which the backward pass recomputes what `config.remat` says."""
        apply, config = self.blocks[i].apply, self.config
        if config.remat == "none":
            return apply
        return jax.checkpoint(apply, policy=REMAT[config.remat], prevent_cse=not config.scan_blocks)

    def start(self, x_RTD: jax.Array) -> Any:
        """Returns the residual stream of a model before its first block, which makes it of vectors [R, T, D]."""
        return self._first.start(x_RTD) if self._first else x_RTD

    def finish(self, x: Any) -> jax.Array:
        """Returns the vectors [R, T, D] of the residual stream after the last block."""
        return self._first.finish(x) if self._first else x

    @property
    def _first(self) -> Block | None:
        return next((each for each in layers_of(self) if isinstance(each, Block)), None)

    @property
    def cached(self) -> bool:
        """Whether every layer keeps what later tokens need of earlier ones."""
        return all(getattr(layer, "cached", True) for layer in layers_of(self))


def _checked(answer: Any, x: jax.Array, layer: Layer) -> tuple[jax.Array, Context]:
    """Returns what a layer made of x.

    Raises:
      UserError: it is not (y, context) with a y of the shape of x; another y could broadcast in silence.
    """
    name = f"{type(layer).__name__}.apply"
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise UserError(f"{name}: expected to return (y, context), got {type(answer).__name__}")
    if getattr(answer[0], "shape", None) != x.shape:
        raise UserError(f"{name}: expected to return y of shape {[*x.shape]}, got {[*jnp.shape(answer[0])]}")
    return answer


def _shapes(tree: Any) -> Any:
    return jax.tree.map(lambda x: (x.shape, x.dtype), tree)


def layers_of(layer: Any) -> Iterator[Any]:
    """Yields blocks, the layers in them and those around them; a stack stands for its blocks."""
    inside = getattr(layer, "blocks", ()) or getattr(layer, "layers", {}).values()
    inside = [*inside, *([layer.part] if hasattr(layer, "part") else [])]
    for each in inside:
        yield from layers_of(each)
    if not hasattr(layer, "blocks"):
        yield layer


def require_documents(stack: Stack, batch: Mapping[str, Any]) -> None:
    """Raises a UserError if rows hold several documents and a layer reads across them."""
    for layer in layers_of(stack) if "documents" in batch else ():
        if not getattr(layer, "by_document", True):
            what = f"{type(layer).__name__} of model.blocks remembers or reads other documents of a row"
            raise UserError(f"documents: {what}; leave attention within a document (task.document_mask) off")
