"""Linear attention: a running associative memory (seed 002, "masked self attention"; Katharopoulos et al. 2020).

A feature map φ takes the place of the softmax: a query reads Σ φ(q)·φ(k_c) v_c / Σ φ(q)·φ(k_c). The sums follow
from Σ v_c ⊗ φ(k_c) and Σ φ(k_c), to which each token adds one term. So the memory has a constant size. The seed has no
feature map: its weights q·k_c / Σ q·k_c sum to one, but may be negative, and are unbounded where the sum is near zero.
"""

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from fxf.base.config import Choices, one_of
from fxf.base.weights import Params, Spec
from fxf.layers.attention import Attention
from fxf.layers.layer import Context, Places
from fxf.layers.linear import as_float32
from fxf.layers.named import named

# Tokens in a chunk. Queries read the keys of their own chunk directly, and earlier ones through the memory.
CHUNK = 64

# All features but those of 'none' are positive, and so are the weights. A small number keeps their sum above zero.
FEATURE_MAPS = Choices(
    {
        "elu": lambda x: jax.nn.elu(x) + (1 + 1e-6),
        "relu": lambda x: jax.nn.relu(x) + 1e-6,
        "exp": lambda x: jnp.exp(jnp.minimum(x, 30.0)) + 1e-6,
        "none": lambda x: x,  # the products themselves (seed 002)
    }
)


class Associations(flax.struct.PyTreeNode):
    """The sums Σ v_c ⊗ φ(k_c), `values` [R, G, K, O], and Σ φ(k_c), `total` [R, G, K], in float32 or float64."""

    values: jax.Array
    total: jax.Array


class LinearAttention(Attention):
    """Attention whose weights are products of features. Padding has weight 0."""

    has_scores = False
    by_document = False

    def spec(self) -> Spec:
        one_of(self.config.feature_map, FEATURE_MAPS, "model.feature_map")
        return super().spec()

    def apply(self, params: Params, x: jax.Array, context: Context) -> tuple[jax.Array, Context]:
        """Returns the output of causal attention, or of attention to all where tokens have no order, [R, T, D]."""
        q_RHTK, places = self.project(params, "query", x), context.places
        if places.order is None:
            memory = self.memorize(params, x, places)
            return self.output(params, self.attend(params, q_RHTK, memory, places, places, context), x), context
        k_RGTK, v_RGTO = (self.project(params, name, x) for name in ("key", "value"))
        k_RGTK = self.features(k_RGTK, places)
        q_RGETK = self.features(q_RHTK).reshape(*k_RGTK.shape[:2], -1, *q_RHTK.shape[2:])
        shape = (*k_RGTK.shape[:2], k_RGTK.shape[-1])
        nothing = Associations(jnp.zeros((*shape, v_RGTO.shape[-1]), k_RGTK.dtype), jnp.zeros(shape, k_RGTK.dtype))
        mean_RGETO, memory = causal_mean(q_RGETK, k_RGTK, v_RGTO, context.cache or nothing)
        if context.cache is None:  # computed only if something reads the name
            products_RGETC = jnp.tril(jnp.einsum("RGETK,RGCK->RGETC", q_RGETK, k_RGTK))
            weights_RGETC = products_RGETC / products_RGETC.sum(-1, keepdims=True)
            named("weights", weights_RGETC.reshape(*q_RHTK.shape[:3], -1))
        cache = None if context.cache is None else memory
        heads_RHTK = mean_RGETO.reshape(q_RHTK.shape).astype(q_RHTK.dtype)
        return self.output(params, heads_RHTK, x), context.replace(cache=cache)

    def memorize(self, params: Params, source_BSD: jax.Array, places: Places) -> Associations:
        """Returns the associations of a whole sequence."""
        k_BGCK = self.features(self.project(params, "key", source_BSD), places)
        v_BGCO = self.project(params, "value", source_BSD)
        return Associations(jnp.einsum("BGCK,BGCO->BGKO", k_BGCK, v_BGCO), k_BGCK.sum(2))

    def attend(
        self, params: Params, q_BHTK: jax.Array, memory: Any, queries: Places, keys: Places, context: Context
    ) -> jax.Array:
        """Returns the attention output from the associations, [B, H, T, O]."""
        q_BGQK = self.features(q_BHTK).reshape(*memory.total.shape[:2], -1, q_BHTK.shape[-1])
        read = jnp.einsum("BGQK,BGKO->BGQO", q_BGQK, memory.values)
        weight = jnp.einsum("BGQK,BGK->BGQ", q_BGQK, memory.total)
        return _divided(read, weight).reshape(q_BHTK.shape).astype(q_BHTK.dtype)

    def features(self, x_BGCK: jax.Array, places: Places | None = None) -> jax.Array:
        """Returns φ(x) in float32 or float64, for queries [B, H, T, K] or keys [B, G, C, K], and zeros for padding."""
        features = FEATURE_MAPS[self.config.feature_map](as_float32(x_BGCK))
        if places is None or places.documents is None:
            return features
        return jnp.where((places.documents > 0)[:, None, :, None], features, 0)


def causal_mean(
    q_RGETK: jax.Array, k_RGTK: jax.Array, v_RGTO: jax.Array, before: Associations
) -> tuple[jax.Array, Associations]:
    """Returns the weighted mean of this and earlier values, [R, G, E, T, O], and the associations after all tokens.

    Args:
      q_RGETK, k_RGTK: features of queries and keys; E heads of queries share a head of keys.
      before: the associations of earlier tokens.
    """
    length = k_RGTK.shape[2]
    chunk = min(CHUNK, length)
    n_chunks = -(-length // chunk)

    def in_chunks(x: jax.Array) -> jax.Array:
        """Cuts [R, G, …, T, K] into [chunks, R, G, …, chunk, K]; zeros pad the last chunk."""
        padding = [(0, 0)] * (x.ndim - 2) + [(0, n_chunks * chunk - length), (0, 0)]
        parts = jnp.pad(x, padding).reshape(*x.shape[:-2], n_chunks, chunk, x.shape[-1])
        return jnp.moveaxis(parts, -3, 0)

    def one_chunk(memory: Associations, part: tuple) -> tuple[Associations, jax.Array]:
        q, k, v = part
        products = jnp.tril(jnp.einsum("RGETK,RGCK->RGETC", q, k))
        read = jnp.einsum("RGETC,RGCO->RGETO", products, v) + jnp.einsum("RGETK,RGKO->RGETO", q, memory.values)
        weight = products.sum(-1) + jnp.einsum("RGETK,RGK->RGET", q, memory.total)
        after = Associations(memory.values + jnp.einsum("RGCK,RGCO->RGKO", k, v), memory.total + k.sum(2))
        return after, _divided(read, weight)

    after, means_NRGETO = jax.lax.scan(one_chunk, before, jax.tree.map(in_chunks, (q_RGETK, k_RGTK, v_RGTO)))
    means_RGENTO = jnp.moveaxis(means_NRGETO, 0, 3)
    return means_RGENTO.reshape(*q_RGETK.shape[:3], -1, v_RGTO.shape[-1])[..., :length, :], after


def _divided(read: jax.Array, weight: jax.Array) -> jax.Array:
    """Returns sums of values [..., O] over sums of weights [...]; a sum of weights is 0 where there is only padding."""
    return read / jnp.where(weight == 0, 1, weight)[..., None]
