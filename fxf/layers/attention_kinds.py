"""The contract of a kind of attention, and the kinds whose output is a weighted mean of values."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from fxf.layers.cache import KeysValues, init_keys_values, write
from fxf.layers.config import TransformerConfig
from fxf.layers.dropout import dropout
from fxf.layers.linear import as_float32
from fxf.layers.mask import Mask
from fxf.layers.soft_cap import soft_cap


class Attention(NamedTuple):
    """A kind of attention. Queries are [B, H, T, K], keys and values [B, G, C, K]; H is a multiple of G.

    Attributes:
      memorize: `memorize(config, keys_values, mask)` returns the memory of a whole sequence, which queries read.
      attend: `attend(config, q_BHTK, memory, mask, rng)` returns what the queries read, [B, H, T, K].
      attend_causally: `attend_causally(config, q_BHTK, keys_values, mask, cache, rng)` returns the same and the cache.
        Queries attend to the cache and the new keys and values, or, if the cache is None, to these alone.
      init_cache: `init_cache(config, batch_size, length, dtype)` returns an empty cache.
      scores: whether each query and key have a score, on which positional encodings, windows and dropout can act. The
        cache is then `KeysValues`, which the hypotheses of a beam share; otherwise it has one entry for each row.
    """

    memorize: Callable[..., Any]
    attend: Callable[..., jax.Array]
    attend_causally: Callable[..., tuple[jax.Array, Any]]
    init_cache: Callable[..., Any]
    scores: bool


def of_whole_sequences(kind: Attention, attend: Callable[..., jax.Array]) -> Attention:
    """Returns a kind that reads whole sequences by `attend`. With a cache, XLA attention is used instead."""

    def attend_causally(
        config: TransformerConfig, q_BHTK: jax.Array, new: Any, mask: Mask, cache: None, rng: jax.Array | None
    ) -> tuple[jax.Array, None]:
        assert cache is None  # `cached_blocks`
        return attend(config, q_BHTK, new, mask, rng), None

    return kind._replace(attend=attend, attend_causally=attend_causally)


def softmax(scores_BHTC: jax.Array, bias_BHTC: jax.Array) -> jax.Array:
    """Returns the weights e^(score + bias), normalized."""
    return jax.nn.softmax(scores_BHTC + bias_BHTC)


def expressive(scores_BHTC: jax.Array, bias_BHTC: jax.Array) -> jax.Array:
    """Returns z² / (1 + z²) · e^bias, normalized, of scores z (Gros 2024; seed 002, "expressive attention")."""
    # The small number gives equal weights where all scores are zero.
    squares = jnp.square(scores_BHTC) + 1e-20
    weights = squares / (1 + squares) * jnp.exp(bias_BHTC)
    return weights / weights.sum(-1, keepdims=True)


def weighted(weigh: Callable[[jax.Array, jax.Array], jax.Array]) -> Attention:
    """Returns the attention whose weights are `weigh(scores, bias)`, all [B, H, T, C].

    The bias is that of `Mask`. It is -inf for keys that a query may not see: later tokens, padding, and the empty part
    of a cache. The weights must not depend on the number of these keys.
    """

    def attend(
        config: TransformerConfig, q_BHTK: jax.Array, memory: KeysValues, mask: Mask, rng: jax.Array | None
    ) -> jax.Array:
        batch_size, n_groups = memory.keys.shape[:2]
        q_BGQK = q_BHTK.reshape(batch_size, n_groups, -1, q_BHTK.shape[-1])
        products = as_float32(jnp.einsum("BGQK,BGCK->BGQC", q_BGQK, memory.keys))
        scaled = products * config.query_scale if config.query_scale else products / math.sqrt(q_BHTK.shape[-1])
        scores = soft_cap(scaled, config.attention_softcap)
        scores_BHTC = scores.reshape(*q_BHTK.shape[:-1], -1)
        weights_BHTC = weigh(scores_BHTC, jnp.broadcast_to(mask.bias.astype(scores.dtype), scores_BHTC.shape))
        weights_BHTC = dropout(rng, checkpoint_name(weights_BHTC, "weights"), config.attention_dropout)
        weights_BGQC = weights_BHTC.reshape(scores.shape).astype(q_BHTK.dtype)
        heads = jnp.einsum("BGQC,BGCK->BGQK", weights_BGQC, memory.values)
        return heads.reshape(q_BHTK.shape)

    def attend_causally(
        config: TransformerConfig,
        q_BHTK: jax.Array,
        new: KeysValues,
        mask: Mask,
        cache: KeysValues | None,
        rng: jax.Array | None,
    ) -> tuple[jax.Array, KeysValues | None]:
        if cache is not None:
            assert mask.places is not None
            cache = write(cache, mask.places, new)
            new = cache
        return attend(config, q_BHTK, new, mask, rng), cache

    return Attention(lambda config, new, mask: new, attend, attend_causally, init_keys_values, scores=True)
