"""Decoding step by step: the model reads the newest token of each prompt, and a method chooses the next one."""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp

from fxf.errors import UserError
from fxf.layers.cache import Cache
from fxf.models.model import Model
from fxf.weights import Params

# N prompts: int32 `tokens` [N, P], right-padded, of which row n holds `lengths[n]` (from 0 to P); where it is another
# than token 0, the token `first` [N] that a decoder reads in front of them; and whatever else the model's prefill
# reads, such as a `source`. `positions` [N, C] may say where all tokens of a row stand, the one in front included:
# positions[n, 0] is where that one stands, and positions[n, t] where the t-th token behind it does, of the prompt or
# new. C is P + max_tokens or more; the last new token is never read.
Prompts = dict[str, Any]


class Method(NamedTuple):
    """How tokens are chosen: pure functions on a state of B prompts, a tree of arrays [B, ...].

    The cache has R rows: one a prompt, or as many a prompt as the method makes of it at the start.

    Attributes:
      max_tokens: of the longest continuation.
      start: `start(numbers_B, cache) -> (state, cache)` of prompts without new tokens, given their numbers among all.
      choose: `choose(state, cache, logits_RV) -> (state, cache, tokens_R)`: the next token of each row.
      ended: `ended(state)`, bool [B]: nothing more is to be chosen.
      output: `output(state)`, what is found: a tree of arrays [B, ...].
    """

    max_tokens: int
    start: Callable[[jax.Array, Cache], tuple[Any, Cache]]
    choose: Callable[[Any, Cache, jax.Array], tuple[Any, Cache, jax.Array]]
    ended: Callable[[Any], jax.Array]
    output: Callable[[Any], Any]


@flax.struct.dataclass
class Progress:
    """How far B prompts are: their cache, the newest token of each row [R], which is not in it yet, and the state."""

    cache: Cache
    last_R: jax.Array
    state: Any


def decode(model: Model, params: Params, prompts: Prompts, method: Method) -> Any:
    """Decodes N prompts by a method. Call it under `jax.jit`.

    Returns:
      The method's output for the prompts, a tree of arrays [N, ...].
    """

    def unfinished(progress: Progress) -> jax.Array:
        return ~method.ended(progress.state).all()

    def one_step(progress: Progress) -> Progress:
        return step(model, params, method, progress)

    start = begin(model, params, prompts, method, jnp.arange(len(prompts["tokens"])), method.max_tokens)
    return method.output(jax.lax.while_loop(unfinished, one_step, start).state)


def begin(
    model: Model, params: Params, prompts: Prompts, method: Method, numbers_B: jax.Array, max_tokens: int
) -> Progress:
    """Reads prompts of these numbers into a cache with room for `max_tokens` more.

    The last token of each is left to the first step: its logits choose the first new token.
    """
    rest = dict(prompts)
    tokens_BP, lengths_B = (jnp.asarray(rest.pop(name)) for name in ("tokens", "lengths"))
    first_B = jnp.asarray(rest.pop("first")) if "first" in rest else jnp.zeros_like(lengths_B)
    inputs_BT = jnp.concatenate([first_B[:, None], tokens_BP], axis=1)
    last_B = jnp.take_along_axis(inputs_BT, lengths_B[:, None], axis=1)[:, 0]
    if "positions" in rest and rest["positions"].shape[1] < tokens_BP.shape[1] + method.max_tokens:
        needed = f"{tokens_BP.shape[1]} tokens of the prompts and {method.max_tokens} new ones"
        raise UserError(f"positions: expected those of {needed}, got {rest['positions'].shape[1]}")
    assert model.prefill is not None
    batch = {**rest, "inputs": inputs_BT[:, :-1], "lengths": lengths_B}
    cache = model.prefill(params, batch, tokens_BP.shape[1] + max_tokens)
    state, cache = method.start(numbers_B, cache)
    return Progress(cache, _by_row(last_B, cache), state)


def step(model: Model, params: Params, method: Method, progress: Progress, idle_B: jax.Array | None = None) -> Progress:
    """Reads the newest token of each row and chooses the next. Prompts that have ended, or are idle, stay as they are.

    Their cache may change, at places that are never read.
    """
    assert model.step is not None
    ended_B = method.ended(progress.state) if idle_B is None else idle_B | method.ended(progress.state)
    logits_RV, cache = model.step(params, progress.cache, progress.last_R)
    state, cache, tokens_R = method.choose(progress.state, cache, logits_RV)

    def unless_ended(old: jax.Array, new: jax.Array) -> jax.Array:
        return jnp.where(ended_B.reshape(-1, *[1] * (old.ndim - 1)), old, new)

    state = jax.tree.map(unless_ended, progress.state, state)
    # What has ended writes to the same places again and again, and not beyond the last one.
    stays_R = _by_row(ended_B | method.ended(state), cache)
    lengths_R = jnp.where(stays_R, progress.cache.lengths, cache.lengths)
    return Progress(cache.replace(lengths=lengths_R), tokens_R, state)  # type: ignore[attr-defined]


def _by_row(x_B: jax.Array, cache: Cache) -> jax.Array:
    """Returns what each prompt has for each of its rows in the cache, which lie together."""
    return jnp.repeat(x_B, len(cache.lengths) // len(x_B))
