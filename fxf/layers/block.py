"""Blocks and stacks of them: seed 004, "DecoderBlock Definition" and "inspirational idea"; seeds 000 and 003."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from fxf.layers.attention import ATTENTIONS, attention, attention_spec, cross_attention, cross_memory
from fxf.layers.cache import Cache
from fxf.layers.config import CrossAttentionConfig, TransformerConfig
from fxf.layers.dropout import dropout, split
from fxf.layers.feed_forward import feed_forward, feed_forward_spec
from fxf.layers.mask import Mask
from fxf.layers.normalization import normalization_spec, normalize
from fxf.layers.positions import POSITIONS
from fxf.weights import Numbered, Params, Spec

# What the backward pass finds in memory of a block; all else of it is computed again. "none" computes nothing again.
REMAT = {
    "full": jax.checkpoint_policies.nothing_saveable,
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
}

# What a block with cross-attention reads of the other sequence: the vectors [B, S, D], or what
# `block_cross_memory` made of them; and which count.
Source = tuple[Any, Mask]


def block_spec(config: TransformerConfig, cross: bool = False) -> Spec:
    """Self-attention, with `cross` attention to another sequence, and a feed-forward layer, each with its norm."""
    sublayers = {
        "attention": attention_spec(config),
        **({"cross_attention": attention_spec(config)} if cross else {}),
        "feed_forward": feed_forward_spec(config),
    }
    return {**sublayers, **{f"{name}_norm": normalization_spec(config) for name in sublayers}}


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
    """Adds to x what each sublayer makes of it.

    Args:
      mask: what self-attention may see: of x, or of the cache.
      cache: what self-attention remembers of earlier tokens.
      source: the memory that cross-attention reads (`block_cross_memory`), and its mask.

    Returns:
      [B, T, D], and the cache with what is new.
    """
    rngs = split(rng, 5)
    with jax.named_scope("attention"):
        normalized_BTD = _before(config, params, "attention", x_BTD)
        change_BTD, cache = attention(config, params["attention"], normalized_BTD, mask, cache=cache, rng=rngs[0])
        middle_BTD = _add(config, params, "attention", x_BTD, change_BTD, rngs[1])

    if source is not None:
        assert isinstance(config, CrossAttentionConfig)
        with jax.named_scope("cross_attention"):
            memory, source_mask = source
            asking_BTD = middle_BTD
            if config.cross_norm == "queries":
                asking_BTD = _before(config, params, "cross_attention", middle_BTD)
            change_BTD = cross_attention(
                config, params["cross_attention"], asking_BTD, memory, source_mask, rng=rngs[2]
            )
            middle_BTD = _add(config, params, "cross_attention", middle_BTD, change_BTD, rngs[3])

    change_BTD = feed_forward(config, params["feed_forward"], _before(config, params, "feed_forward", middle_BTD))
    residual_BTD = x_BTD if config.block == "idea" else middle_BTD
    x_BTD = _add(config, params, "feed_forward", residual_BTD, change_BTD, rngs[4])
    return checkpoint_name(x_BTD, "residual"), cache


def _before(config: TransformerConfig, params: Params, name: str, x_BTD: jax.Array) -> jax.Array:
    """Returns what the sublayer `name` reads of the residual stream."""
    return x_BTD if config.block == "post_norm" else normalize(config, params[f"{name}_norm"], x_BTD)


def _add(
    config: TransformerConfig,
    params: Params,
    name: str,
    x_BTD: jax.Array,
    change_BTD: jax.Array,
    rng: jax.Array | None,
) -> jax.Array:
    """Returns the residual stream with what the sublayer `name` made."""
    x_BTD = x_BTD + dropout(rng, change_BTD, config.dropout)
    return normalize(config, params[f"{name}_norm"], x_BTD) if config.block == "post_norm" else x_BTD


def block_cross_memory(config: CrossAttentionConfig, params: Params, source_BSD: jax.Array, mask: Mask) -> Any:
    """Returns what cross-attention in the block with these params reads of the encoder's output."""
    if config.cross_norm == "source":
        source_BSD = normalize(config, params["cross_attention_norm"], source_BSD)
    return cross_memory(config, params["cross_attention"], source_BSD, mask)


def blocks_spec(config: TransformerConfig, cross: bool = False) -> Spec:
    """Returns the spec of every block, by its number."""
    return Numbered(block_spec(config, cross), config.n_layers)


def each_block(params: Params) -> list[Params]:
    """Returns the params of every block, in order."""
    return [params[str(i)] for i in range(len(params))]


def empty_cache(
    config: TransformerConfig, lengths_B: jax.Array, length: int, positions_BC: jax.Array | None = None
) -> Cache:
    """Returns a cache with room for `length` tokens a row, of which the first `lengths_B` are about to be read.

    Args:
      positions_BC: of a row's tokens in their order, where the prompt gives them.
    """
    kind, batch_size = ATTENTIONS[config.attention], lengths_B.shape[0]
    blocks = (kind.empty(config, batch_size, length, config.dtype),) * config.n_layers
    ancestors_B1C = jnp.zeros((batch_size, 1, length), jnp.int32) if kind.scores else None
    makes = POSITIONS[config.positions].from_tokens is not None
    made_BHC1 = jnp.zeros((batch_size, config.n_heads, length, 1)) if makes else None
    return Cache(blocks, lengths_B, None, ancestors_B1C, positions_BC, made_BHC1)


def train_blocks(
    config: TransformerConfig,
    params: Params,
    x_BTD: jax.Array,
    mask: Mask,
    *,
    source: Source | None = None,
    rng: jax.Array | None = None,
) -> jax.Array:
    """Runs the blocks over whole sequences: [B, T, D] to [B, T, D].

    With scan_blocks the compiled program stacks the weights of all blocks and loops over one block; without, it holds
    every block.

    Args:
      params: of all blocks (`blocks_spec`).
      source: the encoder's output [B, S, D], for blocks with cross-attention, and its mask.
    """

    def run(x_BTD: jax.Array, layer: Any) -> tuple[jax.Array, None]:
        block_params, block_rng = layer
        memory = None
        if source is not None:
            assert isinstance(config, CrossAttentionConfig)
            memory = (block_cross_memory(config, block_params, *source), source[1])
        return block(config, block_params, x_BTD, mask, source=memory, rng=block_rng)[0], None

    if config.remat != "none":
        run = jax.checkpoint(run, policy=REMAT[config.remat], prevent_cse=not config.scan_blocks)
    rngs = None if rng is None else jax.random.split(rng, config.n_layers)
    blocks = each_block(params)
    if config.scan_blocks:
        stacked = jax.tree.map(lambda *weights: jnp.stack(weights), *blocks)
        return jax.lax.scan(run, x_BTD, (stacked, rngs))[0]
    for i, block_params in enumerate(blocks):
        with jax.named_scope(f"block_{i}"):
            x_BTD, _ = run(x_BTD, (block_params, None if rngs is None else rngs[i]))
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
    """Runs the blocks over new tokens, which see all tokens up to their own in the caches.

    Each block has a cache of its own, which a decoding loop can update in place. Attention is computed by XLA, whatever
    `config.attention_implementation`: for one query a row there are few scores.

    Args:
      sources: for each block with cross-attention, the memory it reads and its mask.
    """
    config = dataclasses.replace(config, attention_implementation="xla")
    written = []
    for i, block_params in enumerate(each_block(params)):
        x_BTD, cache = block(
            config, block_params, x_BTD, mask, cache=caches[i], source=None if sources is None else sources[i]
        )
        written.append(cache)
    return x_BTD, tuple(written)
