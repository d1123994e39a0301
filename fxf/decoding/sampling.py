"""Choosing the next token from logits: greedy, or sampled with temperature, top-k and top-p."""

import dataclasses

import jax
import jax.numpy as jnp

from fxf.errors import UserError


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How to choose a token; the default is greedy.

    Attributes:
      temperature: divides the logits; 0 is greedy.
      top_k: keeps the k most probable tokens; 0 keeps all.
      top_p: then keeps the fewest most probable tokens that hold at least this share of the probability
        (Holtzman et al. 2020); 1 keeps all.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not self.temperature >= 0:
            raise UserError(f"temperature: expected at least 0, got {self.temperature}")
        if self.top_k < 0:
            raise UserError(f"top_k: expected at least 0, got {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise UserError(f"top_p: expected more than 0 and at most 1, got {self.top_p}")
        if self.temperature == 0 and (self.top_k or self.top_p < 1):
            raise UserError("top_k, top_p: greedy decoding does not read them; set a temperature above 0")


def choose(sampling: Sampling, logits_BV: jax.Array, keys_B: jax.Array) -> jax.Array:
    """Returns one token a row, int32 [B]; each row draws from a key of its own, so rows do not depend on each other."""
    if sampling.temperature == 0:
        return jnp.argmax(logits_BV, axis=-1).astype(jnp.int32)
    allowed_BV = restrict(sampling, logits_BV / sampling.temperature)
    return jax.vmap(jax.random.categorical)(keys_B, allowed_BV).astype(jnp.int32)


def restrict(sampling: Sampling, logits_BV: jax.Array) -> jax.Array:
    """Returns the logits with -inf for the tokens that top-k and top-p leave out; ties at the edge stay in."""
    if 0 < sampling.top_k < logits_BV.shape[-1]:
        kth = jax.lax.top_k(logits_BV, sampling.top_k)[0][:, -1:]
        logits_BV = jnp.where(logits_BV < kth, -jnp.inf, logits_BV)
    if sampling.top_p < 1:
        descending = -jnp.sort(-logits_BV, axis=-1)
        probabilities = jax.nn.softmax(descending)
        before = jnp.cumsum(probabilities, axis=-1) - probabilities
        least = jnp.min(jnp.where(before < sampling.top_p, descending, jnp.inf), axis=-1, keepdims=True)
        logits_BV = jnp.where(logits_BV < least, -jnp.inf, logits_BV)
    return logits_BV
