"""Blocks, which join layers to the residual stream, and stacks of blocks.

Seed 004, "DecoderBlock Definition" and "inspirational idea"; seeds 000 and 003.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from fxf.base.config import Choices
from fxf.base.errors import UserError, of_shape
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
    """Named layers and their norms. A kind of block is a subclass whose `apply` joins layers to the residual stream.

    The residual stream is [R, T, D], or whatever `start` makes of that.

    Attributes:
      norms: each layer has a norm `<layer>_<norm>` for each of these.
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
        """Returns the residual stream that the first block reads, made from vectors [R, T, D]."""
        return x

    def finish(self, x: Any) -> jax.Array:
        """Returns vectors [R, T, D], made from the residual stream after the last block."""
        return x

    def norm(self, params: Params, name: str, x: jax.Array, which: str = "norm") -> jax.Array:
        """Returns x normalized by a norm of the layer with this name."""
        if which == "norm" and self._normalizes_source(name):
            return x
        with jax.named_scope(name):
            return normalize(self.config, params[f"{name}_{which}"], x)

    def beside(self, params: Params, name: str, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns x and `norm` of x. If later code uses the returned x, one GPU kernel sums both gradients of x."""
        if self._normalizes_source(name) or type(self).norm is not Block.norm:
            return x, self.norm(params, name, x)
        with jax.named_scope(name):
            return beside(self.config, params[f"{name}_norm"], x)

    def layer(self, params: Params, name: str, x: jax.Array, context: Context) -> tuple[jax.Array, Context]:
        """Returns the output of the layer with this name, and the context after it."""
        rng, _ = self._keys(name, context.rng)
        cache = None if context.cache is None else context.cache.get(name, {})
        own = context.replace(cache=cache, rng=rng)
        if context.source is not None and self._normalizes_source(name):
            source_BSD, places = context.source
            own = own.replace(source=(normalize(self.config, params[f"{name}_norm"], source_BSD), places))
        with jax.named_scope(name):
            output = self.layers[name].apply(params[name], x, own)
        y, new = _checked(output, self.layers[name], x.shape)
        caches = None if context.cache is None else {**context.cache, name: new.cache}
        return y, context.replace(cache=caches, carry=new.carry)

    def dropout(self, name: str, y: jax.Array, context: Context) -> jax.Array:
        """Returns the output of the layer with this name after dropout."""
        return dropout(self._keys(name, context.rng)[1], y, self.config.dropout)

    def _normalizes_source(self, name: str) -> bool:
        return name == "cross_attention" and getattr(self.config, "cross_norm", "queries") == "source"

    def _keys(self, name: str, rng: jax.Array | None) -> list[jax.Array | None]:
        """Returns the random keys of a layer and of the dropout of its output.

        The last layer has other indices than the pattern, so that usual blocks draw the same as in earlier versions.
        """
        i, n = list(self.layers).index(name), len(self.layers)
        indices = (2 * i, 2 * i + 1) if i < n - 1 else (2 * i + 1, max(2 * i, 4))
        keys = split(rng, max(2 * n, 5))
        return [keys[j] for j in indices]


class PreNorm(Block):
    """X + F(N X) for each layer F in turn."""

    def apply(self, params: Params, x: Any, context: Context) -> tuple[Any, Context]:
        for name in self.layers:
            x, normalized = self.beside(params, name, x)
            y, context = self.layer(params, name, normalized, context)
            x = x + self.dropout(name, y, context)
        return x, context


class PostNorm(Block):
    """N(X + F X) for each layer F in turn."""

    def apply(self, params: Params, x: Any, context: Context) -> tuple[Any, Context]:
        for name in self.layers:
            y, context = self.layer(params, name, x, context)
            x = self.norm(params, name, x + self.dropout(name, y, context))
        return x, context


class Sandwich(Block):
    """X + M(F(N X)) for each layer F in turn, with a second norm M."""

    norms = ("norm", "post_norm")

    def apply(self, params: Params, x: Any, context: Context) -> tuple[Any, Context]:
        for name in self.layers:
            y, context = self.layer(params, name, self.norm(params, name, x), context)
            x = x + self.dropout(name, self.norm(params, name, y, "post_norm"), context)
        return x, context


class OutputNorm(Block):
    """X + N F(X) for each layer F in turn: the norm acts on the layer's output (OLMo et al. 2024, OLMo 2)."""

    def apply(self, params: Params, x: Any, context: Context) -> tuple[Any, Context]:
        for name in self.layers:
            y, context = self.layer(params, name, x, context)
            x = x + self.dropout(name, self.norm(params, name, y), context)
        return x, context


class Idea(Block):
    """X + FF(N Y), where Y is X after the other layers, as in `PreNorm` (seed 004, "inspirational idea")."""

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
    """A sequence of blocks. The weights of block i are `params['<i>']`.

    Attributes:
      blocks: all of them, in order; equal ones may be one object.
      head, period: after the first `head` blocks, the kinds of blocks repeat with this period. An iteration of a loop
        (`config.scan_blocks`) has `period` blocks.
      shared: whether all periods have the weights of the first one; then `head` is 0.
      stream: the name of the residual stream after each block (see named.py); blocks nested in a block have another.
    """

    config: TransformerConfig
    blocks: tuple[Layer, ...]
    head: int = 0
    period: int = 1
    shared: bool = False
    stream: str = "residual"

    def spec(self) -> Spec:
        blocks = self.blocks[: self.period] if self.shared else self.blocks
        specs = {id(block): block.spec() for block in blocks}
        return {str(i): specs[id(block)] for i, block in enumerate(blocks)}

    def apply(self, params: Params, x: Any, context: Context) -> tuple[Any, Context]:
        """Returns the residual stream after all blocks, and the context.

        With scan_blocks and no cache, the compiled program stacks the weights and loops over periods. Otherwise it
        contains every block, and each block has its own part of the cache, which decoding can update in place.
        """
        n, i, period, caches = len(self.blocks), 0, self.period, {}
        rngs = [None] * n if context.rng is None else jax.random.split(context.rng, n)
        # The block whose weights block i has: itself, or with shared weights that of the first period.
        owners = [i % period if self.shared else i for i in range(n)]
        cached = [None if context.cache is None else context.cache.get(str(i), {}) for i in range(n)]
        inputs = [(params[str(owners[i])], cached[i], rngs[i]) for i in range(n)]

        def turn(state: Any, inputs: Any) -> tuple[Any, None]:
            """Applies the blocks of one iteration of a loop that begins at block i."""
            x, new = state[0], context.replace(carry=state[1])
            for j, (weights, _, rng) in enumerate(inputs, i):
                with jax.named_scope(f"block_{j}"):  # numbered as in the first iteration; named.py counts on
                    x, new = _checked(self._apply_of(j, in_loop=True)(weights, x, new.replace(rng=rng)), self.blocks[j])
                    x = named(self.stream, x)
            return (x, new.carry), None

        while i < n:
            loops = self.config.scan_blocks and context.cache is None and i >= self.head
            starts = range(i, n - period + 1, period) if loops and (i - self.head) % period == 0 else ()
            turns, state = [inputs[start : start + period] for start in starts], (x, context.carry)
            # A period that changes the shapes of the carry or of the stream runs before the loop.
            if len(turns) > 1 and _shapes(jax.eval_shape(turn, state, turns[0])[0]) == _shapes(state):
                (x, carry), _ = jax.lax.scan(turn, state, jax.tree.map(lambda *leaves: jnp.stack(leaves), *turns))
                context, i = context.replace(carry=carry), i + len(turns) * period
                continue
            weights, cache, rng = inputs[i]
            with jax.named_scope(f"block_{i}"):
                output = self._apply_of(i)(weights, x, context.replace(cache=cache, rng=rng))
                x, new = _checked(output, self.blocks[i])
                x = named(self.stream, x)
            context, caches[str(i)] = context.replace(carry=new.carry), new.cache
            i += 1
        return x, context.replace(cache=None if context.cache is None else caches)

    def _apply_of(self, i: int, in_loop: bool = False) -> Callable[[Params, Any, Context], tuple[Any, Context]]:
        """Returns `apply` of block i, with the gradient checkpointing of `config.remat`.

        Outside of a loop XLA would merge what the backward pass recomputes with the forward pass, and keep it.
        """
        apply, config = self.blocks[i].apply, self.config
        if config.remat == "none":
            return apply
        return jax.checkpoint(apply, policy=REMAT[config.remat], prevent_cse=not in_loop)

    def start(self, x_RTD: jax.Array) -> Any:
        """Returns the residual stream that the first block makes from vectors [R, T, D]."""
        return self._first.start(x_RTD) if self._first else x_RTD

    def finish(self, x: Any) -> jax.Array:
        """Returns vectors [R, T, D], made from the residual stream after the last block."""
        return self._first.finish(x) if self._first else x

    @property
    def _first(self) -> Block | None:
        return next((layer for layer in layers_of(self) if isinstance(layer, Block)), None)

    @property
    def cached(self) -> bool:
        """Whether every layer can decode from a cache; see `Layer`."""
        return all(getattr(layer, "cached", True) for layer in layers_of(self))


def _checked(output: Any, layer: Layer, shape: tuple[int, ...] | None = None) -> tuple[Any, Context]:
    """Returns what a layer or a block returned.

    Raises:
      UserError: it is not (y, context) with y of this shape; another shape could broadcast silently.
    """
    name = f"{type(layer).__name__}.apply"
    if not isinstance(output, tuple) or len(output) != 2 or not isinstance(output[1], Context):
        kinds = [type(each).__name__ for each in (output if isinstance(output, tuple) else [output])]
        raise UserError(f"{name}: expected to return (y, context), got {', '.join(kinds)}")
    return output if shape is None else (of_shape(output[0], shape, name), output[1])


def _shapes(tree: Any) -> Any:
    return jax.tree.map(lambda x: (x.shape, x.dtype), tree)


def layers_of(layer: Any) -> Iterator[Any]:
    """Yields the blocks and layers inside a layer, and the layer itself; a stack stands for its blocks."""
    inside = getattr(layer, "blocks", ()) or getattr(layer, "layers", {}).values()
    inside = [*inside, *([layer.part] if hasattr(layer, "part") else [])]
    for part in inside:
        yield from layers_of(part)
    if not hasattr(layer, "blocks"):
        yield layer


def require_documents(stack: Stack, batch: Mapping[str, Any]) -> None:
    """Raises a UserError if rows hold several documents and a layer reads across them."""
    for layer in layers_of(stack) if "documents" in batch else ():
        if not getattr(layer, "by_document", True):
            what = f"{type(layer).__name__} of model.blocks reads across documents of a row"
            raise UserError(f"documents: {what}; leave attention within a document (task.document_mask) off")
