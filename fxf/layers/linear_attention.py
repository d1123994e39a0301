"""Linear attention: a running associative memory (seed 002, "masked self attention"; Katharopoulos et al. 2020).

A feature map φ takes the place of the softmax: a query reads Σ φ(q)·φ(k_c) v_c / Σ φ(q)·φ(k_c). The sums follow
from Σ v_c ⊗ φ(k_c) and Σ φ(k_c), to which each token adds one term. So the memory has a constant size. The seed has no
feature map: its weights q·k_c / Σ q·k_c sum to one, but have either sign, and any size where the sum is near zero.
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

# Tokens in a chunk. Queries read keys of their own chunk one by one, and earlier ones through the memory.
CHUNK = 64

# Features are positive but for none, and so are the weights. A small number keeps their sum from being zero.
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
    """Attention whose weights are products of features. Padding has none."""

    has_scores = False
    by_document = False

    def spec(self) -> Spec:
        one_of(self.config.feature_map, FEATURE_MAPS, "model.feature_map")
        return super().spec()

    def apply(self, params: Params, x: jax.Array, context: Context) -> tuple[jax.Array, Context]:
        """Returns the output of causal attention to this and earlier tokens, or of attention to all, [R, T, D]."""
        q_RHTK = self.project(params, "query", x)
        if context.places.order is None:
            memory = self.memorize(params, x, context.places)
            heads = self.attend(params, q_RHTK, memory, context.places, context.places, context)
            return self.output(params, heads, x), context
        k_RGTK, v_RGTK = (self.project(params, name, x) for name in ("key", "value"))
        start = context.cache
        if not start:  # of no token
            shape = (q_RHTK.shape[0], self.config.n_groups, self.config.head_width)
            wide = jnp.promote_types(q_RHTK.dtype, jnp.float32)
            start = Associations(jnp.zeros((*shape, self.config.head_width), wide), jnp.zeros(shape, wide))
        heads, after = self._causal(q_RHTK, k_RGTK, v_RGTK, context.places, start)
        if context.cache is None:
            self._show_weights(q_RHTK, k_RGTK, context.places)
        cache = None if context.cache is None else after
        return self.output(params, heads, x), context.replace(cache=cache)

    def memorize(self, params: Params, source_BSD: jax.Array, places: Places) -> Associations:
        """Returns the associations of a whole sequence."""
        k_BGCK = self.features(self.project(params, "key", source_BSD), places)
        v_BGCO = self.project(params, "value", source_BSD)
        return Associations(jnp.einsum("BGCK,BGCO->BGKO", k_BGCK, v_BGCO), k_BGCK.sum(2))

    def attend(
        self, params: Params, q_BHTK: jax.Array, memory: Any, queries: Places, keys: Places, context: Context
    ) -> jax.Array:
        """Returns what the queries read from the associations, [B, H, T, O]."""
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

    def _causal(
        self, q_RHTK: jax.Array, k_RGTK: jax.Array, v_RGTK: jax.Array, places: Places, start: Associations
    ) -> tuple[jax.Array, Associations]:
        """Returns what the queries read of this and earlier tokens, [R, H, T, O], and the associations after them."""
        batch_size, n_heads, length, head_dim = q_RHTK.shape
        n_groups, chunk = k_RGTK.shape[1], min(CHUNK, length)
        n_chunks = -(-length // chunk)

        def chunked(x: jax.Array) -> jax.Array:
            """Cuts [R, G, ..., T, K] into [chunks, R, G, ..., chunk, K]; zeros fill the last chunk."""
            padding = [(0, 0)] * (x.ndim - 2) + [(0, n_chunks * chunk - length), (0, 0)]
            parts = jnp.pad(x, padding).reshape(*x.shape[:-2], n_chunks, chunk, x.shape[-1])
            return jnp.moveaxis(parts, -3, 0)

        q_BGETK = self.features(q_RHTK).reshape(batch_size, n_groups, n_heads // n_groups, length, head_dim)
        earlier = jnp.tril(jnp.ones((chunk, chunk))).reshape(1, 1, 1, chunk, chunk)

        def one_chunk(memory: Associations, part: tuple) -> tuple[Associations, jax.Array]:
            q, k, v = part
            products = jnp.einsum("RGETK,RGCK->RGETC", q, k) * earlier
            read = jnp.einsum("RGETC,RGCO->RGETO", products, v) + jnp.einsum("RGETK,RGKO->RGETO", q, memory.values)
            weight = products.sum(-1) + jnp.einsum("RGETK,RGK->RGET", q, memory.total)
            after = Associations(memory.values + jnp.einsum("RGCK,RGCO->RGKO", k, v), memory.total + k.sum(2))
            return after, _divided(read, weight)

        parts = (chunked(q_BGETK), chunked(self.features(k_RGTK, places)), chunked(v_RGTK))
        if n_chunks == 1:
            after, heads = one_chunk(start, jax.tree.map(lambda x: x[0], parts))
        else:
            after, chunks = jax.lax.scan(one_chunk, start, parts)
            heads = jnp.moveaxis(chunks, 0, -3).reshape(*chunks.shape[1:4], -1, head_dim)[..., :length, :]
        return heads.reshape(q_RHTK.shape).astype(q_RHTK.dtype), after

    def _show_weights(self, q_RHTK: jax.Array, k_RGTK: jax.Array, places: Places) -> None:
        """Names the weights, for who reads named arrays. A program that does not read them does not compute them."""
        batch_size, n_heads, length, head_dim = q_RHTK.shape
        q_RGETK = self.features(q_RHTK).reshape(batch_size, k_RGTK.shape[1], -1, length, head_dim)
        products = jnp.einsum("RGETK,RGCK->RGETC", q_RGETK, self.features(k_RGTK, places))
        products = products * jnp.tril(jnp.ones((1, 1, 1, length, length)))
        weights = products / products.sum(-1, keepdims=True)
        named("weights", weights.reshape(batch_size, n_heads, length, length))


def _divided(read: jax.Array, weight: jax.Array) -> jax.Array:
    """Returns sums of values [..., O] over sums of weights [...]; a sum of weights is 0 where there is only padding."""
    return read / jnp.where(weight == 0, 1, weight)[..., None]
