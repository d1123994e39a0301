"""Greedy decoding, and sampling with temperature, top-k and top-p (Holtzman et al. 2020)."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from fxf.decoding.blocking import repeating, unless_blocked
from fxf.decoding.config import DecodeConfig
from fxf.decoding.steps import Ends, Method, ends_of, is_end
from fxf.layers.cache import Cache
from fxf.machine.random_keys import random_key


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Continuation:
    """One continuation of each of B prompts: the prompt's number, how many new tokens it has, and these tokens."""

    number_B: jax.Array
    limit_B: jax.Array
    n_tokens_B: jax.Array
    tokens_BU: jax.Array
    has_end_B: jax.Array


def sampling(
    max_tokens: int, end_token: Ends, decode: DecodeConfig = DecodeConfig(), key: jax.Array | None = None
) -> Method:
    """Returns the method that continues each prompt until the end token or `max_tokens`.

    The output is int32 tokens [N, 1, U], where U is `max_tokens`, and None in place of scores. End tokens fill the
    places after an end token, or after the last token where no_repeat_ngram allows no other.

    Args:
      key: the key for sampling; greedy decoding does not read it. The prompt of number n draws from `fold_in(key, n)`.
    """

    def start(number_B: jax.Array, limit_B: jax.Array, cache: Cache) -> tuple[_Continuation, Cache]:
        batch_size = len(number_B)
        tokens_BU = jnp.full((batch_size, max_tokens), ends_of(end_token)[0], jnp.int32)
        nothing_B, has_end_B = jnp.zeros(batch_size, jnp.int32), jnp.zeros(batch_size, bool)
        return _Continuation(number_B, limit_B, nothing_B, tokens_BU, has_end_B), cache

    def next_key(number: jax.Array, n_tokens: jax.Array) -> jax.Array:
        prompt_key = jax.random.fold_in(random_key(0) if key is None else key, number)
        return jax.random.fold_in(prompt_key, n_tokens)

    def choose_next(state: _Continuation, cache: Cache, logits_BV: jax.Array) -> tuple[_Continuation, Cache, jax.Array]:
        n_tokens_B = state.n_tokens_B
        repeating_BV = None
        if size := decode.no_repeat_ngram:
            repeating_BV = repeating(state.tokens_BU, n_tokens_B, size, logits_BV.shape[1])
            logits_BV = jnp.where(repeating_BV, -jnp.inf, logits_BV)
        token_B = choose(decode, logits_BV, jax.vmap(next_key)(state.number_B, n_tokens_B))
        tokens_BU = state.tokens_BU.at[jnp.arange(len(token_B)), n_tokens_B].set(token_B)
        new = _Continuation(state.number_B, state.limit_B, n_tokens_B + 1, tokens_BU, is_end(token_B, end_token))
        if repeating_BV is not None:
            new = unless_blocked(repeating_BV.all(axis=1), state, new)
        return new, cache, token_B

    def is_finished(state: _Continuation) -> jax.Array:
        return state.has_end_B | (state.n_tokens_B == state.limit_B)

    def output(state: _Continuation) -> Any:
        return state.tokens_BU[:, None], None

    return Method(max_tokens, start, choose_next, is_finished, output, room=max_tokens)


def choose(decode: DecodeConfig, logits_BV: jax.Array, keys_B: jax.Array) -> jax.Array:
    """Returns one token for each row, int32 [B]. Each row has its own key, so no row depends on another."""
    if decode.temperature == 0:
        return jnp.argmax(logits_BV, axis=-1).astype(jnp.int32)
    allowed_BV = restrict(decode, logits_BV / decode.temperature)
    return jax.vmap(jax.random.categorical)(keys_B, allowed_BV).astype(jnp.int32)


def restrict(decode: DecodeConfig, logits_BV: jax.Array) -> jax.Array:
    """Returns the logits with -inf for the tokens that top-k and top-p exclude. They include ties with the last one."""
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
