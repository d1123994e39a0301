"""Prefill and step of a decoder, from its embedding, blocks and readout."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fxf.layers.block import Source, block_cross_memory, cached_blocks, each_block, empty_cache
from fxf.layers.cache import Cache
from fxf.layers.config import CrossAttentionConfig, TransformerConfig
from fxf.layers.mask import cached_mask
from fxf.layers.positions import read_positions, token_positions
from fxf.models.model import Batch
from fxf.weights import Params


def prefill_and_step(
    config: TransformerConfig,
    embed: Callable[[Params, jax.Array, jax.Array], jax.Array],
    parts: Callable[[Params], tuple[Params, Params]],
    readout: Callable[[Params, jax.Array], jax.Array],
    encode: Callable[[Params, Batch], Source] | None = None,
) -> tuple[Callable[[Any, Batch, int], Cache], Callable[[Any, Cache, jax.Array], tuple[jax.Array, Cache]]]:
    """Returns the functions `prefill` and `step` of a `Model`.

    Args:
      embed: `embed(params, tokens_BT, positions_BT)` [B, T, D].
      parts: returns the params of the decoder's embedding and of its blocks.
      readout: that of the model.
      encode: returns what the blocks' cross-attention reads of a batch, and its mask.
    """

    def read(
        params: Params, cache: Cache, tokens_BT: jax.Array, order_BT: jax.Array, counts_BT: jax.Array | None = None
    ) -> tuple[jax.Array, Cache]:
        """Returns the residual stream of new tokens [B, T, D], and the cache with them."""
        table, blocks = parts(params)
        positions_BT = read = token_positions(config, order_BT, cache.positions)
        if cache.made_BHC1 is not None and counts_BT is not None:  # the first tokens
            read = read_positions(config, table, tokens_BT, positions_BT)
        elif cache.made_BHC1 is not None:  # one of each row
            made_RH1 = read_positions(config, table, tokens_BT.reshape(-1, 1), positions_BT, cache.made_before())
            read = made_RH1.reshape(*tokens_BT.shape, -1).transpose(0, 2, 1)
        if cache.made_BHC1 is not None:
            cache = cache.make(cache.places(order_BT), read)
        mask = cached_mask(config, cache, order_BT, read, counts_BT)
        x_BTD = embed(params, tokens_BT, positions_BT)
        x_BTD, caches = cached_blocks(config, blocks, x_BTD, mask, cache.blocks, sources=cache.source)
        return x_BTD, cache.replace(blocks=caches)  # type: ignore[attr-defined]

    def prefill(params: Params, batch: Batch, length: int) -> Cache:
        tokens_BT, lengths_B, positions_BC = batch["inputs"], batch["lengths"], batch.get("positions")
        source = None if encode is None else encode(params, batch)
        if positions_BC is not None:  # places beyond them are for no token
            positions_BC = jnp.pad(positions_BC, ((0, 0), (0, max(length - positions_BC.shape[1], 0))), "edge")
        cache = empty_cache(config, lengths_B, length, positions_BC)
        if source is not None:
            assert isinstance(config, CrossAttentionConfig)
            memories = (block_cross_memory(config, block, *source) for block in each_block(parts(params)[1]))
            cache = cache.replace(source=tuple((memory, source[1]) for memory in memories))  # type: ignore[attr-defined]
        if not tokens_BT.size:
            return cache
        order_1T = jnp.arange(tokens_BT.shape[1])[None]
        # Padding is cached too, where no query sees it before a later token overwrites it; or it does not count.
        return read(params, cache, tokens_BT, order_1T, order_1T < lengths_B[:, None])[1]

    def step(params: Params, cache: Cache, tokens_R: jax.Array) -> tuple[jax.Array, Cache]:
        x_BTD, cache = read(params, cache, cache.as_tokens(tokens_R), cache.as_tokens(cache.lengths))
        return readout(params, x_BTD.reshape(-1, x_BTD.shape[-1])), cache.replace(lengths=cache.lengths + 1)  # type: ignore[attr-defined]

    return prefill, step
