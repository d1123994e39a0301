"""The contract of a kind of attention, and the kinds whose output is a weighted mean of values."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from fxf.layers.cache import KeysValues, empty_keys_values, write
from fxf.layers.config import TransformerConfig
from fxf.layers.dropout import dropout
from fxf.layers.mask import Mask


class Attention(NamedTuple):
    """A kind of attention. Queries are [B, H, T, K]; H is a multiple of the keys' G.

    Attributes:
      remember: `remember(config, keys_values, mask) -> memory`: what queries can read of a whole sequence.
      recall: `recall(config, q_BHTK, memory, mask, rng)` [B, H, T, K].
      extend: `extend(config, q_BHTK, keys_values, mask, cache, rng) -> (heads [B, H, T, K], cache)`: causal attention
        to the cache and the new keys and values; without a cache (None), to these alone.
      empty: `empty(config, batch_size, length, dtype) -> cache`.
      scores: it has scores, one for a query and a key, so that positional encodings, windows and dropout can act there.
        Its cache is then `KeysValues`, by place; any other cache is by row.
    """

    remember: Callable[..., Any]
    recall: Callable[..., jax.Array]
    extend: Callable[..., tuple[jax.Array, Any]]
    empty: Callable[..., Any]
    scores: bool


def softmax(scores_BHTC: jax.Array, bias_BHTC: jax.Array) -> jax.Array:
    """Weights e^(score + bias), normalized."""
    return jax.nn.softmax(scores_BHTC + bias_BHTC)


def expressive(scores_BHTC: jax.Array, bias_BHTC: jax.Array) -> jax.Array:
    """Weights z² / (1 + z²) · e^bias, normalized, for scores z (Gros 2024; seed 002, "expressive attention")."""
    # The small number makes the weights of an all-zero row even.
    squares = jnp.square(scores_BHTC) + 1e-20
    weights = squares / (1 + squares) * jnp.exp(bias_BHTC)
    return weights / weights.sum(-1, keepdims=True)


def weighted(weigh: Callable[[jax.Array, jax.Array], jax.Array]) -> Attention:
    """Returns the attention whose weights are `weigh(scores, bias)`, all [B, H, T, C].

    Bias is that of `Mask`. C counts keys that a query may not see too, whose bias is -inf: later tokens, padding, and
    places of a cache that nothing is written to yet. Weights must not depend on how many these are.
    """

    def recall(
        config: TransformerConfig, q_BHTK: jax.Array, memory: KeysValues, mask: Mask, rng: jax.Array | None
    ) -> jax.Array:
        batch_size, n_groups = memory.keys.shape[:2]
        grouped = q_BHTK.reshape(batch_size, n_groups, -1, q_BHTK.shape[-1])
        products = jnp.einsum("BGTK,BGCK->BGTC", grouped, memory.keys).astype(jnp.float32)
        scores = products / math.sqrt(q_BHTK.shape[-1])
        scores_BHTC = scores.reshape(*q_BHTK.shape[:-1], -1)
        weights_BHTC = weigh(scores_BHTC, jnp.broadcast_to(mask.bias.astype(scores.dtype), scores_BHTC.shape))
        weights_BHTC = dropout(rng, checkpoint_name(weights_BHTC, "weights"), config.attention_dropout)
        weights_BGTC = weights_BHTC.reshape(scores.shape).astype(q_BHTK.dtype)
        heads = jnp.einsum("BGTC,BGCK->BGTK", weights_BGTC, memory.values)
        return heads.reshape(q_BHTK.shape)

    def extend(
        config: TransformerConfig,
        q_BHTK: jax.Array,
        new: KeysValues,
        mask: Mask,
        cache: KeysValues | None,
        rng: jax.Array | None,
    ) -> tuple[jax.Array, KeysValues | None]:
        if cache is not None:
            assert mask.places is not None
            new = cache = write(cache, mask.places, new)
        return recall(config, q_BHTK, new, mask, rng), cache

    return Attention(lambda config, new, mask: new, recall, extend, empty_keys_values, scores=True)
