"""Linear attention: a running associative memory (seed 002, "masked self attention"; Katharopoulos et al. 2020).

With a feature map φ in place of the softmax, what a query reads, Σ φ(q)·φ(k_c) v_c / Σ φ(q)·φ(k_c), factors into
W = Σ v_c ⊗ φ(k_c) and z = Σ φ(k_c), which grow by one term a token: W_m = W_(m-1) + V_m ⊗ K_m. Memory is constant.
"""

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from fxf.layers.attention_kinds import Attention
from fxf.layers.cache import KeysValues
from fxf.layers.config import TransformerConfig
from fxf.layers.mask import Mask

# Tokens whose products with each other are taken at once; between chunks the memory carries what came before.
CHUNK = 64

# Positive, so that weights are; a small number keeps their sum from being zero.
FEATURE_MAPS = {
    "elu": lambda x: jax.nn.elu(x) + (1 + 1e-6),
    "relu": lambda x: jax.nn.relu(x) + 1e-6,
    "exp": lambda x: jnp.exp(jnp.minimum(x, 30.0)) + 1e-6,
}


@flax.struct.dataclass
class Associations:
    """W [B, G, K, V] (keys' features by values) and z [B, G, K], sums that are kept in float32."""

    values: jax.Array
    total: jax.Array


def empty(config: TransformerConfig, batch_size: int, length: int, dtype: Any) -> Associations:
    del length, dtype
    head_dim = config.d_model // config.n_heads
    shape = (batch_size, config.n_groups, head_dim)
    return Associations(jnp.zeros((*shape, head_dim)), jnp.zeros(shape))


def remember(config: TransformerConfig, new: KeysValues, mask: Mask) -> Associations:
    """Returns the associations of a whole sequence."""
    k_BGCK = _features(config, new.keys, mask.counts)
    return Associations(jnp.einsum("BGCK,BGCV->BGKV", k_BGCK, new.values), k_BGCK.sum(2))


def recall(
    config: TransformerConfig, q_BHTK: jax.Array, memory: Associations, mask: Mask, rng: jax.Array | None
) -> jax.Array:
    """Returns what each query reads of the associations, [B, H, T, V]."""
    del mask, rng
    batch_size, n_groups = memory.total.shape[:2]
    q_BGRK = _features(config, q_BHTK).reshape(batch_size, n_groups, -1, q_BHTK.shape[-1])
    read = jnp.einsum("BGRK,BGKV->BGRV", q_BGRK, memory.values)
    weight = jnp.einsum("BGRK,BGK->BGR", q_BGRK, memory.total)
    return (read / weight[..., None]).reshape(q_BHTK.shape).astype(q_BHTK.dtype)


def extend(
    config: TransformerConfig,
    q_BHTK: jax.Array,
    new: KeysValues,
    mask: Mask,
    cache: Associations | None,
    rng: jax.Array | None,
) -> tuple[jax.Array, Associations | None]:
    """Causal attention, chunk by chunk: products inside a chunk, associations for what came before it."""
    del rng
    batch_size, n_heads, length, head_dim = q_BHTK.shape
    n_groups = new.keys.shape[1]
    chunk = min(CHUNK, length)
    n_chunks = -(-length // chunk)

    def chunked(x: jax.Array) -> jax.Array:
        """[B, G, ..., T, K] to [chunks, B, G, ..., chunk, K]; what is missing is 0 and counts nothing."""
        padding = [(0, 0)] * (x.ndim - 2) + [(0, n_chunks * chunk - length), (0, 0)]
        parts = jnp.pad(x, padding).reshape(*x.shape[:-2], n_chunks, chunk, x.shape[-1])
        return jnp.moveaxis(parts, -3, 0)

    q_BGRTK = _features(config, q_BHTK).reshape(batch_size, n_groups, n_heads // n_groups, length, head_dim)
    k_BGTK = _features(config, new.keys, mask.counts)
    earlier_TC = jnp.tril(jnp.ones((chunk, chunk))).reshape(1, 1, 1, chunk, chunk)

    def one_chunk(memory: Associations, part: tuple) -> tuple[Associations, jax.Array]:
        q, k, v = part
        products = jnp.einsum("BGRTK,BGCK->BGRTC", q, k) * earlier_TC
        read = jnp.einsum("BGRTC,BGCV->BGRTV", products, v) + jnp.einsum("BGRTK,BGKV->BGRTV", q, memory.values)
        weight = products.sum(-1) + jnp.einsum("BGRTK,BGK->BGRT", q, memory.total)
        after = Associations(memory.values + jnp.einsum("BGCK,BGCV->BGKV", k, v), memory.total + k.sum(2))
        # Rows of padding read nothing of nothing.
        return after, read / jnp.where(weight > 0, weight, 1)[..., None]

    start = empty(config, batch_size, 0, jnp.float32) if cache is None else cache
    parts = (chunked(q_BGRTK), chunked(k_BGTK), chunked(new.values))
    if n_chunks == 1:
        after, heads = one_chunk(start, jax.tree.map(lambda x: x[0], parts))
    else:
        after, chunks = jax.lax.scan(one_chunk, start, parts)
        heads = jnp.moveaxis(chunks, 0, -3).reshape(*chunks.shape[1:4], -1, head_dim)[..., :length, :]
    if cache is None:
        # For whoever asks for the weights: never computed otherwise, since nothing reads them.
        products = jnp.einsum("BGRTK,BGCK->BGRTC", q_BGRTK, k_BGTK) * jnp.tril(jnp.ones((1, 1, 1, length, length)))
        weights = products / products.sum(-1, keepdims=True)
        checkpoint_name(weights.reshape(batch_size, n_heads, length, length), "weights")
    return heads.reshape(q_BHTK.shape).astype(q_BHTK.dtype), None if cache is None else after


def _features(config: TransformerConfig, x_BHTK: jax.Array, counts_BT: jax.Array | None = None) -> jax.Array:
    """Returns φ(x) in float32, and zeros for what does not count."""
    features_BHTK = FEATURE_MAPS[config.feature_map](x_BHTK.astype(jnp.float32))
    if counts_BT is None:
        return features_BHTK
    return jnp.where(counts_BT[:, None, :, None], features_BHTK, 0)


LINEAR = Attention(remember, recall, extend, empty, scores=False)
