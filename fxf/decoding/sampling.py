"""Choosing the next token from logits: greedy, or sampled with temperature, top-k and top-p (Holtzman et al. 2020)."""

import jax
import jax.numpy as jnp

from fxf.config import DecodeConfig


def choose(decode: DecodeConfig, logits_BV: jax.Array, keys_B: jax.Array) -> jax.Array:
    """Returns one token a row, int32 [B]; each row draws from a key of its own, so rows do not depend on each other."""
    if decode.temperature == 0:
        return jnp.argmax(logits_BV, axis=-1).astype(jnp.int32)
    allowed_BV = restrict(decode, logits_BV / decode.temperature)
    return jax.vmap(jax.random.categorical)(keys_B, allowed_BV).astype(jnp.int32)


def restrict(decode: DecodeConfig, logits_BV: jax.Array) -> jax.Array:
    """Returns the logits with -inf for the tokens that top-k and top-p leave out; ties at the edge stay in."""
    if 0 < decode.top_k < logits_BV.shape[-1]:
        kth = jax.lax.top_k(logits_BV, decode.top_k)[0][:, -1:]
        logits_BV = jnp.where(logits_BV < kth, -jnp.inf, logits_BV)
    if decode.top_p < 1:
        descending = -jnp.sort(-logits_BV, axis=-1)
        probabilities = jax.nn.softmax(descending)
        before = jnp.cumsum(probabilities, axis=-1) - probabilities
        least = jnp.min(jnp.where(before < decode.top_p, descending, jnp.inf), axis=-1, keepdims=True)
        logits_BV = jnp.where(logits_BV < least, -jnp.inf, logits_BV)
    return logits_BV
