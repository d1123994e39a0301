"""Blocks and stacks of blocks: seed 004, "DecoderBlock Definition" and "inspirational idea"; seeds 000 and 003."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from fxf.config import one_of
from fxf.errors import UserError
from fxf.layers.attention import ATTENTIONS, attention, attention_spec, cross_attention, cross_memory
from fxf.layers.block_kinds import BLOCKS, Sublayer
from fxf.layers.cache import Cache
from fxf.layers.config import CrossAttentionConfig, TransformerConfig
from fxf.layers.dropout import dropout, split
from fxf.layers.feed_forward import feed_forward, feed_forward_spec
from fxf.layers.mask import Mask
from fxf.layers.normalization import normalization_spec, normalize
from fxf.layers.positions import POSITIONS
from fxf.weights import Numbered, Params, Spec

# What a block keeps in memory for the backward pass, which recomputes the rest. 'none' recomputes nothing.
REMAT = {
    "full": jax.checkpoint_policies.nothing_saveable,
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
}

# What cross-attention reads: the vectors of the source [B, S, D], or their `block_cross_memory`; and their mask.
Source = tuple[Any, Mask]


def block_spec(config: TransformerConfig, cross: bool = False) -> Spec:
    """Returns the weights of each sublayer and its norm; with `cross`, also those of cross-attention.

    Raises:
      UserError: a kind of block, of layer or of norm is unknown.
    """
    kind = BLOCKS[one_of(config.block, BLOCKS, "model.block")]
    sublayers = {
        "attention": attention_spec(config),
        **({"cross_attention": attention_spec(config)} if cross else {}),
        "feed_forward": feed_forward_spec(config),
    }
    norms = [f"{name}_norm" for name in sublayers]
    if kind.has_post_norms:
        norms += [f"{name}_post_norm" for name in sublayers]
    return {**sublayers, **{name: normalization_spec(config) for name in norms}}


def block(
    config: TransformerConfig,
    params: Params,
    x_BTD: jax.Array,
    mask: Mask,
    *,
    cache: Any = None,
    source: Source | None = None,
    rng: jax.Array | None = None,
) -> tuple[jax.Array, Any]:
    """Returns the residual stream after the block, [B, T, D], and the cache with the new tokens.

    Args:
      mask: of self-attention, in x or in the cache.
      cache: self-attention's cache of earlier tokens.
      source: the memory that cross-attention reads (`block_cross_memory`), and its mask.

    Raises:
      UserError: the kind of block does not compute attention once.
    """
    rngs = split(rng, 5)
    caches = []

    def attend(x_BTD: jax.Array) -> jax.Array:
        update_BTD, new = attention(config, params["attention"], x_BTD, mask, cache=cache, rng=rngs[0])
        caches.append(new)
        return update_BTD

    def attend_to_source(x_BTD: jax.Array) -> jax.Array:
        assert isinstance(config, CrossAttentionConfig) and source is not None
        return cross_attention(config, params["cross_attention"], x_BTD, *source, rng=rngs[2])

    sublayers = [_sublayer(config, params, "attention", attend, rngs[1])]
    if source is not None:
        sublayers.append(_sublayer(config, params, "cross_attention", attend_to_source, rngs[3]))
    feed = functools.partial(feed_forward, config, params["feed_forward"])
    sublayers.append(_sublayer(config, params, "feed_forward", feed, rngs[4]))
    x_BTD = BLOCKS[config.block].join(x_BTD, sublayers)
    if len(caches) != 1:
        raise UserError(f"model.block: '{config.block}' computes attention {len(caches)} times; expected once")
    return checkpoint_name(x_BTD, "residual"), caches[0]


def _sublayer(
    config: TransformerConfig,
    params: Params,
    name: str,
    output: Callable[[jax.Array], jax.Array],
    rng: jax.Array | None,
) -> Sublayer:
    """Returns the sublayer `name`. What it computes has this name in compiled programs."""

    def named(function: Callable[..., jax.Array], *arguments: Any) -> Callable[[jax.Array], jax.Array]:
        def call(x_BTD: jax.Array) -> jax.Array:
            with jax.named_scope(name):
                return function(*arguments, x_BTD)

        return call

    norms = {
        key: named(normalize, config, params[key]) for key in (f"{name}_norm", f"{name}_post_norm") if key in params
    }
    if name == "cross_attention" and isinstance(config, CrossAttentionConfig) and config.cross_norm == "source":
        norms[f"{name}_norm"] = lambda x_BTD: x_BTD  # `block_cross_memory` has normalized the source
    return Sublayer(
        output=named(output),
        norm=norms[f"{name}_norm"],
        dropout=lambda x_BTD: dropout(rng, x_BTD, config.dropout),
        post_norm=norms.get(f"{name}_post_norm"),
    )


def block_cross_memory(config: CrossAttentionConfig, params: Params, source_BSD: jax.Array, mask: Mask) -> Any:
    """Returns the memory of the encoder's output that cross-attention in the block with these params reads."""
    if config.cross_norm == "source":
        source_BSD = normalize(config, params["cross_attention_norm"], source_BSD)
    return cross_memory(config, params["cross_attention"], source_BSD, mask)


def blocks_spec(config: TransformerConfig, cross: bool = False) -> Spec:
    """Returns the spec of every block, by its index."""
    return Numbered(block_spec(config, cross), config.n_layers)


def each_block(params: Params) -> list[Params]:
    """Returns the params of every block, in order."""
    return [params[str(i)] for i in range(len(params))]


def init_cache(
    config: TransformerConfig,
    lengths_B: jax.Array,
    length: int,
    positions: jax.Array | None = None,
    n_walks: int = 0,
) -> Cache:
    """Returns an empty cache with room for `length` tokens in each row.

    Args:
      lengths_B: numbers of tokens that the caller is about to write.
      positions: the positions of a row's tokens, [B, T], if the prompts give them.
      n_walks: the number M of walks along a row's tokens, if these make the positions.
    """
    kind, batch_size = ATTENTIONS[config.attention], lengths_B.shape[0]
    blocks = (kind.init_cache(config, batch_size, length, config.dtype),) * config.n_layers
    walks_BMCJ = None
    if n_walks:
        walks_BMCJ = jnp.zeros((batch_size, n_walks, length, POSITIONS[config.positions].n_state))
    return Cache(blocks, lengths_B, None, positions, walks_BMCJ, n_places=length if kind.scores else 0)


def train_blocks(
    config: TransformerConfig,
    params: Params,
    x_BTD: jax.Array,
    mask: Mask,
    *,
    source: Source | None = None,
    rng: jax.Array | None = None,
) -> jax.Array:
    """Returns the residual stream after all blocks, [B, T, D], for whole sequences.

    With scan_blocks the compiled program stacks the weights of all blocks and loops over one block. Otherwise the
    program contains every block.

    Args:
      params: of all blocks (`blocks_spec`).
      source: the encoder's output [B, S, D], for blocks with cross-attention, and its mask.
    """

    def run(x_BTD: jax.Array, layer: Any) -> tuple[jax.Array, None]:
        block_params, block_rng, index = layer
        memory = None
        if source is not None:
            assert isinstance(config, CrossAttentionConfig)
            memory = (block_cross_memory(config, block_params, *source), source[1])
        block_mask = mask.of_block(config, index)
        return block(config, block_params, x_BTD, block_mask, source=memory, rng=block_rng)[0], None

    if config.remat != "none":
        run = jax.checkpoint(run, policy=REMAT[config.remat], prevent_cse=not config.scan_blocks)
    rngs = None if rng is None else jax.random.split(rng, config.n_layers)
    blocks = each_block(params)
    if config.scan_blocks:
        stacked = jax.tree.map(lambda *weights: jnp.stack(weights), *blocks)
        return jax.lax.scan(run, x_BTD, (stacked, rngs, jnp.arange(config.n_layers) if config.global_every else None))[
            0
        ]
    for i, block_params in enumerate(blocks):
        index = i if config.global_every else None
        with jax.named_scope(f"block_{i}"):
            x_BTD, _ = run(x_BTD, (block_params, None if rngs is None else rngs[i], index))
    return x_BTD


def cached_blocks(
    config: TransformerConfig,
    params: Params,
    x_BTD: jax.Array,
    mask: Mask,
    caches: tuple[Any, ...],
    *,
    sources: tuple[Source, ...] | None = None,
) -> tuple[jax.Array, tuple[Any, ...]]:
    """Returns the residual stream of new tokens after all blocks, [B, T, D], and the caches with these tokens.

    Each block has its own cache, which a decoding loop can update in place. XLA computes the attention, whatever
    `config.attention_implementation` says, because a decoding step has few scores.

    Args:
      sources: for each block with cross-attention, the memory that it reads and its mask.
    """
    config = dataclasses.replace(config, attention_implementation="xla")
    new_caches = []
    for i, block_params in enumerate(each_block(params)):
        source, block_mask = None if sources is None else sources[i], mask.of_block(config, i)
        x_BTD, cache = block(config, block_params, x_BTD, block_mask, cache=caches[i], source=source)
        new_caches.append(cache)
    return x_BTD, tuple(new_caches)
