"""Greedy decoding, and sampling with temperature, top-k and top-p (Holtzman et al. 2020)."""

import dataclasses

import flax.struct
import jax
import jax.numpy as jnp

from fxf.models.decode_config import DecodeConfig
from fxf.models.rules import Rules


class Answers(flax.struct.PyTreeNode):
    """One answer to each of B prompts, so far."""

    number_B: jax.Array  # the number of the prompt
    limit_B: jax.Array  # the largest number of new tokens
    n_tokens_B: jax.Array
    tokens_BU: jax.Array  # the new tokens, then end tokens
    is_finished_B: jax.Array


@dataclasses.dataclass(frozen=True)
class Sampling:
    """Continues each prompt by one answer, up to an end token or its limit.

    Where the rules allow no token, the answer ends.

    Attributes:
      key: the random key. Token n of the prompt with number i is drawn with `fold_in(fold_in(key, i), n)`.
    """

    rules: Rules
    key: jax.Array

    width = 1

    def start(self, number_B: jax.Array, limit_B: jax.Array, max_tokens: int) -> Answers:
        """Returns answers without tokens."""
        tokens_BU = jnp.full((len(number_B), max_tokens), self.rules.ends[0], jnp.int32)
        return Answers(number_B, limit_B, jnp.zeros_like(limit_B), tokens_BU, jnp.zeros(len(limit_B), bool))

    def choose(self, state: Answers, logits_B1V: jax.Array) -> tuple[Answers, jax.Array, jax.Array]:
        """Returns the answers with a new token each, their parents (all 0), and the new tokens, each [B, 1]."""
        rules, so_far = self.rules, (state.tokens_BU, state.n_tokens_B)
        logits_BV = rules.applied(logits_B1V[:, 0], *so_far)
        token_B = draw(rules.config, logits_BV, jax.vmap(self.key_of)(state.number_B, state.n_tokens_B))
        if rules.exclude:
            token_B = jnp.where(jnp.isneginf(logits_BV).all(axis=1), rules.ends[0], token_B)
        answers, _ = self.with_tokens(state, token_B[:, None], jnp.ones_like(token_B))
        return answers, jnp.zeros_like(token_B)[:, None], token_B[:, None]

    def with_tokens(self, state: Answers, tokens_BI: jax.Array, n_new_B: jax.Array) -> tuple[Answers, jax.Array]:
        """Appends each row's first tokens to its answer, up to `n_new`, an end or the limit; also returns how many."""
        indices_1I, is_end_BI = jnp.arange(tokens_BI.shape[1])[None], jnp.isin(tokens_BI, self.rules.ends)
        is_new_BI = indices_1I < jnp.minimum(n_new_B, state.limit_B - state.n_tokens_B)[:, None]
        is_new_BI &= jnp.cumsum(is_end_BI, axis=1) - is_end_BI == 0
        # Tokens that are not new get an index beyond the last one, and are dropped.
        places_BI = jnp.where(is_new_BI, state.n_tokens_B[:, None] + indices_1I, state.tokens_BU.shape[1])
        tokens_BU = state.tokens_BU.at[jnp.arange(len(tokens_BI))[:, None], places_BI].set(tokens_BI)
        n_new_B = is_new_BI.sum(1, dtype=jnp.int32)  # like the counts, even with JAX_ENABLE_X64
        n_tokens_B = state.n_tokens_B + n_new_B
        is_finished_B = (is_end_BI & is_new_BI).any(1) | (n_tokens_B == state.limit_B)
        return state.replace(n_tokens_B=n_tokens_B, tokens_BU=tokens_BU, is_finished_B=is_finished_B), n_new_B

    def key_of(self, number: jax.Array, n_tokens: jax.Array) -> jax.Array:
        return jax.random.fold_in(jax.random.fold_in(self.key, number), n_tokens)

    def output(self, state: Answers) -> tuple[jax.Array, None]:
        """Returns the tokens, int32 [B, 1, U], and None in place of scores."""
        return state.tokens_BU[:, None], None


def draw(config: DecodeConfig, logits_BV: jax.Array, keys_B: jax.Array) -> jax.Array:
    """Returns one token for each row, int32 [B]. Each row has its own key, so no row depends on another."""
    if config.temperature == 0:
        return jnp.argmax(logits_BV, axis=-1).astype(jnp.int32)
    allowed_BV = restrict(config, logits_BV / config.temperature)
    return jax.vmap(jax.random.categorical)(keys_B, allowed_BV).astype(jnp.int32)


def probabilities(config: DecodeConfig, logits_BV: jax.Array) -> jax.Array:
    """Returns the distribution from which `draw` draws, [B, V]; at temperature 0 one token has probability 1."""
    if config.temperature == 0:
        return jax.nn.one_hot(jnp.argmax(logits_BV, axis=-1), logits_BV.shape[-1])
    return jax.nn.softmax(restrict(config, logits_BV / config.temperature))


def restrict(config: DecodeConfig, logits_BV: jax.Array) -> jax.Array:
    """Returns the logits with -inf for tokens outside top-k and top-p, which include ties with their last token."""
    if 0 < config.top_k < logits_BV.shape[-1]:
        kth = jax.lax.top_k(logits_BV, config.top_k)[0][:, -1:]
        logits_BV = jnp.where(logits_BV < kth, -jnp.inf, logits_BV)
    if config.top_p < 1:
        descending = -jnp.sort(-logits_BV, axis=-1)
        probabilities = jax.nn.softmax(descending)
        before = jnp.cumsum(probabilities, axis=-1) - probabilities
        least = jnp.min(jnp.where(before < config.top_p, descending, jnp.inf), axis=-1, keepdims=True)
        logits_BV = jnp.where(logits_BV < least, -jnp.inf, logits_BV)
    return logits_BV
