"""Prefill and step of a decoder, made from its embedding, blocks and readout."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fxf.layers.block import Source, block_cross_memory, cached_blocks, each_block, init_cache
from fxf.layers.cache import Cache
from fxf.layers.config import CrossAttentionConfig, TransformerConfig
from fxf.layers.mask import cached_mask
from fxf.layers.positions import attention_positions, n_walks, require_room, token_positions, walk_states
from fxf.models.model import Batch
from fxf.weights import Params


def prefill_and_step(
    config: TransformerConfig,
    embed: Callable[..., jax.Array],
    parts: Callable[[Params], tuple[Params, Params]],
    readout: Callable[[Params, jax.Array], jax.Array],
    encode: Callable[[Params, Batch], Source] | None = None,
) -> tuple[Callable[[Any, Batch, int], Cache], Callable[[Any, Cache, jax.Array], tuple[jax.Array, Cache]]]:
    """Returns the functions `prefill` and `step` of a `Model`.

    Args:
      embed: `embed(params, tokens_BT, positions_BT, states_BMTJ=…)` returns vectors [B, T, D].
      parts: returns the params of the decoder's embedding and of its blocks.
      readout: the readout of the model.
      encode: returns the encoder's output for a batch, which cross-attention reads, and its mask.
    """

    def read_tokens(
        params: Params, cache: Cache, tokens_BT: jax.Array, indices_BT: jax.Array, is_token_BT: jax.Array | None = None
    ) -> tuple[jax.Array, Cache]:
        """Returns the residual stream of new tokens [B, T, D], and the cache with these tokens."""
        table, blocks = parts(params)
        positions_BT = token_positions(config, indices_BT, cache.positions)
        states_BMTJ = _new_states(config, table, cache, tokens_BT, are_prompts=is_token_BT is not None)
        attended_positions = attention_positions(config, positions_BT, states_BMTJ)
        cache, places_BT = cache.with_new(indices_BT)
        if states_BMTJ is not None:
            cache = cache.write_states(places_BT, states_BMTJ)
        mask = cached_mask(config, cache, places_BT, indices_BT, attended_positions, is_token_BT)
        x_BTD = embed(params, tokens_BT, positions_BT, states_BMTJ=states_BMTJ)
        x_BTD, caches = cached_blocks(config, blocks, x_BTD, mask, cache.blocks, sources=cache.source)
        return x_BTD, dataclasses.replace(cache, blocks=caches)

    def prefill(params: Params, batch: Batch, length: int) -> Cache:
        tokens_BT, lengths_B, positions = batch["inputs"], batch["lengths"], batch.get("positions")
        source = None if encode is None else encode(params, batch)
        if positions is None:
            require_room(config, tokens_BT.shape[1])
        if positions is not None:  # as many as the cache has room for; no query reads the padded positions
            positions = jnp.pad(positions, ((0, 0), (0, max(length - positions.shape[1], 0))), "edge")
        cache = init_cache(config, lengths_B, length, positions, n_walks(config, parts(params)[0]))
        if source is not None:
            assert isinstance(config, CrossAttentionConfig)
            memories = (block_cross_memory(config, block, *source) for block in each_block(parts(params)[1]))
            cache = dataclasses.replace(cache, source=tuple((memory, source[1]) for memory in memories))
        if not tokens_BT.size:
            return cache
        indices_1T = jnp.arange(tokens_BT.shape[1])[None]
        # The cache has padding too. No query sees it before a later token overwrites it, or the mask hides it.
        return read_tokens(params, cache, tokens_BT, indices_1T, indices_1T < lengths_B[:, None])[1]

    def step(params: Params, cache: Cache, tokens_R: jax.Array) -> tuple[jax.Array, Cache]:
        x_BTD, cache = read_tokens(params, cache, cache.as_tokens(tokens_R), cache.as_tokens(cache.lengths))
        return readout(params, x_BTD.reshape(-1, x_BTD.shape[-1])), dataclasses.replace(
            cache, lengths=cache.lengths + 1
        )

    return prefill, step


def _new_states(
    config: TransformerConfig, table: Params, cache: Cache, tokens_BT: jax.Array, are_prompts: bool
) -> jax.Array | None:
    """Returns the states [B, M, T, J] of the walks at new tokens: those of whole prompts, or one token of each row.

    None if the tokens make no positions. `table` holds the params of the embedding.
    """
    if cache.walks_BMCJ is None:
        return None
    if are_prompts:
        return walk_states(config, table, tokens_BT)
    states_RM1J = walk_states(config, table, tokens_BT.reshape(-1, 1), cache.last_states())
    assert states_RM1J is not None
    states_BTMJ = states_RM1J.reshape(*tokens_BT.shape, *states_RM1J.shape[1::2])
    return states_BTMJ.transpose(0, 2, 1, 3)
