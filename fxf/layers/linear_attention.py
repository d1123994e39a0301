"""Linear attention: a running associative memory (seed 002, "masked self attention"; Katharopoulos et al. 2020).

A feature map φ takes the place of the softmax: a query reads Σ φ(q)·φ(k_c) v_c / Σ φ(q)·φ(k_c). The sums follow
from Σ v_c ⊗ φ(k_c) and Σ φ(k_c), to which each token adds one term. So the memory has a constant size.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from fxf.config import Choices
from fxf.layers.attention_kinds import Attention
from fxf.layers.cache import KeysValues
from fxf.layers.config import TransformerConfig
from fxf.layers.linear import as_float32
from fxf.layers.mask import Mask

# Tokens in a chunk. Queries read keys of their own chunk one by one, and earlier ones through the memory.
CHUNK = 64

# Features are positive, and so are the weights. A small number keeps their sum from being zero.
FEATURE_MAPS = Choices(
    {
        "elu": lambda x: jax.nn.elu(x) + (1 + 1e-6),
        "relu": lambda x: jax.nn.relu(x) + 1e-6,
        "exp": lambda x: jnp.exp(jnp.minimum(x, 30.0)) + 1e-6,
    }
)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Associations:
    """The sums Σ v_c ⊗ φ(k_c), `values` [B, G, K, O], and Σ φ(k_c), `total` [B, G, K], in float32 or float64."""

    values: jax.Array
    total: jax.Array


def init_cache(config: TransformerConfig, batch_size: int, length: int, dtype: Any) -> Associations:
    """Returns the associations of no token."""
    del length
    wide = jnp.promote_types(dtype, jnp.float32)
    shape = (batch_size, config.n_groups, config.head_width)
    return Associations(jnp.zeros((*shape, config.head_width), wide), jnp.zeros(shape, wide))


def memorize(config: TransformerConfig, new: KeysValues, mask: Mask) -> Associations:
    """Returns the associations of a whole sequence."""
    k_BGCK = _features(config, new.keys, mask.is_token)
    return Associations(jnp.einsum("BGCK,BGCO->BGKO", k_BGCK, new.values), k_BGCK.sum(2))


def attend(
    config: TransformerConfig, q_BHTK: jax.Array, memory: Associations, mask: Mask, rng: jax.Array | None
) -> jax.Array:
    """Returns what the queries read from the associations, [B, H, T, O]."""
    del mask, rng
    batch_size, n_groups = memory.total.shape[:2]
    q_BGQK = _features(config, q_BHTK).reshape(batch_size, n_groups, -1, q_BHTK.shape[-1])
    read = jnp.einsum("BGQK,BGKO->BGQO", q_BGQK, memory.values)
    weight = jnp.einsum("BGQK,BGK->BGQ", q_BGQK, memory.total)
    return (read / weight[..., None]).reshape(q_BHTK.shape).astype(q_BHTK.dtype)


def attend_causally(
    config: TransformerConfig,
    q_BHTK: jax.Array,
    new: KeysValues,
    mask: Mask,
    cache: Associations | None,
    rng: jax.Array | None,
) -> tuple[jax.Array, Associations | None]:
    """Returns the output of causal attention, [B, H, T, O], and the cache; see `attend_causally` of `Attention`."""
    del rng
    batch_size, n_heads, length, head_dim = q_BHTK.shape
    n_groups = new.keys.shape[1]
    chunk = min(CHUNK, length)
    n_chunks = -(-length // chunk)

    def chunked(x: jax.Array) -> jax.Array:
        """Cuts [B, G, ..., T, K] into [chunks, B, G, ..., chunk, K]; zeros fill the last chunk."""
        padding = [(0, 0)] * (x.ndim - 2) + [(0, n_chunks * chunk - length), (0, 0)]
        parts = jnp.pad(x, padding).reshape(*x.shape[:-2], n_chunks, chunk, x.shape[-1])
        return jnp.moveaxis(parts, -3, 0)

    q_BGETK = _features(config, q_BHTK).reshape(batch_size, n_groups, n_heads // n_groups, length, head_dim)
    k_BGCK = _features(config, new.keys, mask.is_token)
    earlier = jnp.tril(jnp.ones((chunk, chunk))).reshape(1, 1, 1, chunk, chunk)

    def one_chunk(memory: Associations, part: tuple) -> tuple[Associations, jax.Array]:
        q, k, v = part
        products = jnp.einsum("BGETK,BGCK->BGETC", q, k) * earlier
        read = jnp.einsum("BGETC,BGCO->BGETO", products, v) + jnp.einsum("BGETK,BGKO->BGETO", q, memory.values)
        weight = products.sum(-1) + jnp.einsum("BGETK,BGK->BGET", q, memory.total)
        after = Associations(memory.values + jnp.einsum("BGCK,BGCO->BGKO", k, v), memory.total + k.sum(2))
        # The weight is 0 where there is only padding.
        return after, read / jnp.where(weight > 0, weight, 1)[..., None]

    start = init_cache(config, batch_size, 0, q_BHTK.dtype) if cache is None else cache
    parts = (chunked(q_BGETK), chunked(k_BGCK), chunked(new.values))
    if n_chunks == 1:
        after, heads = one_chunk(start, jax.tree.map(lambda x: x[0], parts))
    else:
        after, chunks = jax.lax.scan(one_chunk, start, parts)
        heads = jnp.moveaxis(chunks, 0, -3).reshape(*chunks.shape[1:4], -1, head_dim)[..., :length, :]
    if cache is None:
        # The weights as an intermediate. A program that does not read them does not compute them.
        products = jnp.einsum("BGETK,BGCK->BGETC", q_BGETK, k_BGCK) * jnp.tril(jnp.ones((1, 1, 1, length, length)))
        weights = products / products.sum(-1, keepdims=True)
        checkpoint_name(weights.reshape(batch_size, n_heads, length, length), "weights")
    return heads.reshape(q_BHTK.shape).astype(q_BHTK.dtype), None if cache is None else after


def _features(config: TransformerConfig, x: jax.Array, is_token_BC: jax.Array | None = None) -> jax.Array:
    """Returns φ(x) in float32 or float64, for queries [B, H, T, K] or keys [B, G, C, K], and zeros for padding."""
    features = FEATURE_MAPS[config.feature_map](as_float32(x))
    return features if is_token_BC is None else jnp.where(is_token_BC[:, None, :, None], features, 0)


LINEAR = Attention(memorize, attend, attend_causally, init_cache, scores=False)
