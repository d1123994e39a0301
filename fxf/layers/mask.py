"""What each query of an attention layer may see, and how much the place of it counts."""

import flax.struct
import jax
import jax.numpy as jnp

from fxf.layers.cache import Cache
from fxf.layers.config import TransformerConfig
from fxf.layers.positions import POSITIONS, of_keys, of_queries, token_positions


@flax.struct.dataclass
class Mask:
    """What each query may see.

    Attributes:
      bias: [B, H, T, C] (axes of size 1 repeat), the logarithm of the factor on what a query at T reads at C: 0, or
        -inf for what it may not see, or what the positional encoding has there.
      positions: of the queries, [B, T] or of each head [B, H, T]; None in cross-attention.
      counts: bool [B, C], false for padding; None where all counts. In decoding, of the new tokens [B, T].
      places: where in the cache the new tokens go, int32 [B, T]; None without a cache.
      causal: no query sees what comes after it.
    """

    bias: jax.Array
    positions: jax.Array | None = None
    counts: jax.Array | None = None
    places: jax.Array | None = None
    causal: bool = flax.struct.field(pytree_node=False, default=False)


def self_mask(
    config: TransformerConfig, positions: jax.Array, *, causal: bool, counts_BT: jax.Array | None = None
) -> Mask:
    """Returns what the tokens of a sequence may see of each other: earlier ones, or all that count, in the window."""
    order_1T = jnp.arange(positions.shape[-1])[None]
    bias = _bias(config, positions, positions, (order_1T, order_1T) if causal else None)
    if counts_BT is not None:
        seen = counts_BT[:, None, None]
        if config.window:
            # Padding sees itself, for its window may hold padding alone, and a softmax over nothing is not a number.
            seen |= jnp.eye(counts_BT.shape[1], dtype=bool)[None, None]
        bias = jnp.where(seen, bias, -jnp.inf)
    return Mask(bias, positions, counts_BT, causal=causal)


def cached_mask(
    config: TransformerConfig,
    cache: Cache,
    order_BT: jax.Array,
    positions: jax.Array,
    counts_BT: jax.Array | None = None,
) -> Mask:
    """Returns what new tokens, at `order_BT` of their sequences, may see of a cache once they are written to it."""
    if cache.ancestors is None:
        return Mask(jnp.zeros((1, 1, 1, 1)), positions, counts_BT, causal=True)
    order_1C = cache.order()
    if cache.made_BHC1 is not None:
        places = cache.made_BHC1[..., 0]
    else:
        places = token_positions(config, order_1C, cache.positions)
    bias = _bias(config, positions, places, (order_BT, order_1C))
    return Mask(cache.own_places(bias), positions, counts_BT, cache.places(order_BT), causal=True)


def cross_mask(counts_BS: jax.Array) -> Mask:
    """Returns what is to be seen of another sequence: the positions that count, for every query."""
    return Mask(jnp.where(counts_BS[:, None, None], 0.0, -jnp.inf), counts=counts_BS)


def _bias(
    config: TransformerConfig,
    queries: jax.Array,
    keys: jax.Array,
    order: tuple[jax.Array, jax.Array] | None,
) -> jax.Array:
    """Returns the bias of positions and window; with the `order` of queries and keys, also the causal one.

    Positions do not tell the order: those that are computed may not equal themselves, as XLA leaves out a rounding.
    """
    bias = POSITIONS[config.positions].bias
    bias_BHTC = jnp.zeros((1, 1, 1, 1)) if bias is None else bias(config.n_heads, queries, keys)
    if order is not None:
        order_BT, order_BC = order
        bias_BHTC = jnp.where((order_BT[..., None] >= order_BC[:, None])[:, None], bias_BHTC, -jnp.inf)
    if config.window:
        distances_BHTC = of_queries(queries) - of_keys(keys)
        bias_BHTC = jnp.where(jnp.abs(distances_BHTC) < config.window, bias_BHTC, -jnp.inf)
    return bias_BHTC
