"""Blocks and stacks of them: seed 004, "DecoderBlock Definition" and "inspirational idea"; seeds 000 and 003."""

from typing import Any

import jax
import jax.numpy as jnp

from fxf.config import EncoderDecoderConfig, TransformerConfig
from fxf.layers.attention import KeysValues, attend, attention_spec, keys_values, write
from fxf.layers.dropout import dropout, split
from fxf.layers.feed_forward import feed_forward, feed_forward_spec
from fxf.layers.normalization import normalization_spec, normalize
from fxf.weights import Params, Spec, stack


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
    allowed_BTC: jax.Array,
    *,
    cache: KeysValues | None = None,
    positions_BT: jax.Array | None = None,
    source: KeysValues | None = None,
    source_allowed_BTS: jax.Array | None = None,
    rng: jax.Array | None = None,
) -> tuple[jax.Array, KeysValues | None]:
    """Adds to x what each sublayer makes of it.

    Args:
      allowed_BTC: the positions that self-attention may see: of x, or of the cache.
      cache: keys and values by position. Those of x are written to it at `positions_BT` before attending.
      source: what cross-attention sees (`cross_keys_values`), and `source_allowed_BTS` its positions that count.

    Returns:
      [B, T, D], and the cache with what was written.
    """
    rngs = split(rng, 5)
    dropout_rate = config.attention_dropout
    normalized_BTD = _before(config, params, "attention", x_BTD)
    memory = keys_values(params["attention"], normalized_BTD)
    if cache is not None:
        assert positions_BT is not None
        memory = cache = write(cache, positions_BT, memory)
    change_BTD = attend(
        params["attention"], normalized_BTD, memory, allowed_BTC, rng=rngs[0], dropout_rate=dropout_rate
    )
    middle_BTD = _add(config, params, "attention", x_BTD, change_BTD, rngs[1])

    if source is not None:
        assert isinstance(config, EncoderDecoderConfig) and source_allowed_BTS is not None
        queries_BTD = middle_BTD
        if config.cross_norm == "queries":
            queries_BTD = _before(config, params, "cross_attention", middle_BTD)
        change_BTD = attend(
            params["cross_attention"], queries_BTD, source, source_allowed_BTS, rng=rngs[2], dropout_rate=dropout_rate
        )
        middle_BTD = _add(config, params, "cross_attention", middle_BTD, change_BTD, rngs[3])

    change_BTD = feed_forward(config, params["feed_forward"], _before(config, params, "feed_forward", middle_BTD))
    residual_BTD = x_BTD if config.block == "idea" else middle_BTD
    return _add(config, params, "feed_forward", residual_BTD, change_BTD, rngs[4]), cache


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


def cross_keys_values(config: EncoderDecoderConfig, params: Params, source_BSD: jax.Array) -> KeysValues:
    """Returns what cross-attention in the block with these params sees of the encoder's output."""
    if config.cross_norm == "source":
        source_BSD = normalize(config, params["cross_attention_norm"], source_BSD)
    return keys_values(params["cross_attention"], source_BSD)


def blocks_spec(config: TransformerConfig, cross: bool = False) -> Spec:
    return stack(block_spec(config, cross), config.n_layers)


def one_block(params: Params, i: int) -> Params:
    """Returns the params of block i out of those of all."""
    return jax.tree.map(lambda w: w[i], params)


def each_block(params: Params, n_layers: int) -> list[Params]:
    """Returns the params of every block, cut so that their gradients are joined once.

    The gradient of `w[i]` is as large as all of w, and a sum of n of these takes as long as a training step.
    """
    leaves, tree = jax.tree.flatten(params)
    cut = [jnp.split(leaf, n_layers) for leaf in leaves]
    return [jax.tree.unflatten(tree, [parts[i][0] for parts in cut]) for i in range(n_layers)]


def empty_caches(config: TransformerConfig, batch_size: int, length: int, dtype: Any) -> tuple[KeysValues, ...]:
    """Returns a cache for each block, with room for `length` positions a row."""
    zeros = jnp.zeros((batch_size, config.n_heads, length, config.d_model // config.n_heads), dtype)
    return (KeysValues(zeros, zeros),) * config.n_layers


def train_blocks(
    config: TransformerConfig,
    params: Params,
    x_BTD: jax.Array,
    allowed_BTC: jax.Array,
    *,
    source_BSD: jax.Array | None = None,
    source_allowed_BTS: jax.Array | None = None,
    rng: jax.Array | None = None,
) -> jax.Array:
    """Runs the blocks over whole sequences: [B, T, D] to [B, T, D].

    With scan_blocks the compiled program holds one block and loops over it; without, it holds every block.

    Args:
      params: of all blocks, stacked on a leading layers axis.
      source_BSD: the encoder's output, for blocks with cross-attention.
    """

    def run(x_BTD: jax.Array, layer: Any) -> tuple[jax.Array, None]:
        block_params, block_rng = layer
        source = None if source_BSD is None else cross_keys_values(config, block_params, source_BSD)  # type: ignore[arg-type]
        x_BTD, _ = block(
            config,
            block_params,
            x_BTD,
            allowed_BTC,
            source=source,
            source_allowed_BTS=source_allowed_BTS,
            rng=block_rng,
        )
        return x_BTD, None

    rngs = None if rng is None else jax.random.split(rng, config.n_layers)
    if config.scan_blocks:
        return jax.lax.scan(run, x_BTD, (params, rngs))[0]
    for i, block_params in enumerate(each_block(params, config.n_layers)):
        x_BTD, _ = run(x_BTD, (block_params, None if rngs is None else rngs[i]))
    return x_BTD


def cached_blocks(
    config: TransformerConfig,
    params: Params,
    x_BTD: jax.Array,
    positions_BT: jax.Array,
    caches: tuple[KeysValues, ...],
    *,
    sources: tuple[KeysValues, ...] | None = None,
    source_allowed_BTS: jax.Array | None = None,
) -> tuple[jax.Array, tuple[KeysValues, ...]]:
    """Runs the blocks over the vectors at `positions_BT`, which see all positions up to their own in the caches.

    Each block has a cache of its own, which a decoding loop can update in place.
    """
    allowed_BTC = jnp.arange(caches[0].keys.shape[2])[None, None] <= positions_BT[..., None]
    written: list[KeysValues] = []
    for i, cache in enumerate(caches):
        x_BTD, new_cache = block(
            config,
            one_block(params, i),
            x_BTD,
            allowed_BTC,
            cache=cache,
            positions_BT=positions_BT,
            source=None if sources is None else sources[i],
            source_allowed_BTS=source_allowed_BTS,
        )
        assert new_cache is not None
        written.append(new_cache)
    return x_BTD, tuple(written)
