"""Decoding step by step: the model reads the newest token of each row, and a method chooses the next one."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fxf.errors import UserError
from fxf.layers.cache import Cache
from fxf.models.model import Model
from fxf.weights import Params

# N prompts are a dict of arrays:
#   tokens [N, P], int32: row n has `lengths[n]` tokens (from 0 to P), and padding after them.
#   lengths [N], int32.
#   first [N], int32, optional: the token that the decoder reads before the others; 0 by default.
#   positions [N, T], optional: positions[n, 0] is the position of `first[n]`, and positions[n, t] that of token t after
#     it, of the prompt or new. T is at least P + max_tokens; the last new token is never read.
#   numbers [N], int32, optional: the numbers from which the prompts' samples are drawn; 0, 1, … by default.
#   limits [N], int32, optional: the largest numbers of new tokens, at most that of the method, which is the default.
#   Other arrays that the model's prefill reads, such as `source`.
Prompts = dict[str, Any]

# The token that ends an answer, or a tuple of several, of which the first one fills the places after an answer.
Ends = Any


def ends_of(end_token: Ends) -> tuple[Any, ...]:
    """Returns the tokens that end an answer."""
    return end_token if isinstance(end_token, tuple) else (end_token,)


def is_end(tokens: jax.Array, end_token: Ends) -> jax.Array:
    """Returns whether each token ends an answer."""
    return functools.reduce(jnp.logical_or, [tokens == end for end in ends_of(end_token)])


class Method(NamedTuple):
    """A way to choose tokens: pure functions on the state of B prompts, a tree of arrays [B, ...].

    The cache has R rows. Each prompt has one row, or as many rows as `start` gives it.

    Attributes:
      max_tokens: the largest number of new tokens, at least 1.
      start: `start(numbers_B, limits_B, cache)` returns the state and the cache of prompts without new tokens.
      choose: `choose(state, cache, logits_RV)` returns the state, the cache and the next token of each row, int32 [R].
      is_finished: `is_finished(state)` returns whether a prompt has all its tokens, bool [B].
      output: `output(state)` returns the result, a tree of arrays [B, ...].
      room: number of places of a prompt's cache for new tokens of its rows.
      longest: the largest number of tokens of a prompt and its answer; 0 where only its parts are limited.
    """

    max_tokens: int
    start: Callable[[jax.Array, jax.Array, Cache], tuple[Any, Cache]]
    choose: Callable[[Any, Cache, jax.Array], tuple[Any, Cache, jax.Array]]
    is_finished: Callable[[Any], jax.Array]
    output: Callable[[Any], Any]
    room: int
    longest: int = 0


class PromptGroup(NamedTuple):
    """Prompts that are decoded together.

    Attributes:
      places: the indices of their texts, which are the numbers of the prompts; () for 0, 1, …
      max_tokens: the largest number of new tokens, at least 1; `limits` of the prompts may be lower.
      room: the number of new tokens that is enough for nearly all; 0 for `max_tokens`. Where the prompts of all groups
        are many, they are decoded in a cache with few places beyond these, whose steps are faster, and those that need
        more again.
    """

    places: Sequence[int]
    prompts: Prompts
    max_tokens: int
    room: int = 0


def longest_of(prompts: Prompts) -> int:
    """Returns the largest number of tokens of a prompt and its answer; 0 where the prompts have no limits."""
    if "limits" not in prompts:
        return 0
    totals_N = np.asarray(prompts["lengths"], np.int64) + np.asarray(prompts["limits"], np.int64)
    return max(prompts["tokens"].shape[1], int(totals_N.max()))


def within(method: Method, room: int) -> Method:
    """Returns the method for a cache with fewer places, where a prompt ends when there is none for its next tokens.

    The output is that of the method, and whether it counts, bool [B]. With room 0 it is the method as it was.
    """
    if not room:
        return method

    def output(state: Any) -> Any:
        return method.output(state), method.is_finished(state)

    return method._replace(output=output, room=room)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Progress:
    """The progress of B prompts.

    Attributes:
      cache: their cache, with R rows.
      last_R: the newest token of each row, which is not in the cache yet.
      state: the method's state.
      is_full_B: whether the cache had no place for the next tokens of a prompt, which then stays as it was.
    """

    cache: Cache
    last_R: jax.Array
    state: Any
    is_full_B: jax.Array

    def is_finished(self, method: Method) -> jax.Array:
        """Returns whether a prompt takes no more steps, bool [B]."""
        return method.is_finished(self.state) | self.is_full_B


def decode_batch(model: Model, params: Params, prompts: Prompts, method: Method) -> Any:
    """Returns the method's output for N prompts, a tree of arrays [N, ...]. Call it under `jax.jit`."""

    def unfinished(progress: Progress) -> jax.Array:
        return ~progress.is_finished(method).all()

    def one_step(progress: Progress) -> Progress:
        return step(model, params, method, progress)

    start = begin(model, params, prompts, method, jnp.arange(len(prompts["tokens"])))
    return method.output(jax.lax.while_loop(unfinished, one_step, start).state)


def begin(model: Model, params: Params, prompts: Prompts, method: Method, indices_B: jax.Array) -> Progress:
    """Returns the progress of prompts that have been read into a cache with the method's room.

    The first step reads the last token of each prompt; its logits choose the first new token.

    Args:
      indices_B: the indices of the prompts among all N, which are their numbers by default.

    Raises:
      UserError: the prompts have too few positions.
    """
    rest = dict(prompts)
    tokens_BP, lengths_B = (jnp.asarray(rest.pop(name)) for name in ("tokens", "lengths"))
    limits_B = jnp.full_like(lengths_B, method.max_tokens)
    defaults = {"first": jnp.zeros_like(lengths_B), "numbers": indices_B, "limits": limits_B}
    first_B, numbers_B, limits_B = (jnp.asarray(rest.pop(name, other)) for name, other in defaults.items())
    inputs_BT = jnp.concatenate([first_B[:, None], tokens_BP], axis=1)
    last_B = jnp.take_along_axis(inputs_BT, lengths_B[:, None], axis=1)[:, 0]
    # A cache of its own for each row needs room for all tokens.
    n_tokens = method.longest or tokens_BP.shape[1] + method.max_tokens
    if "positions" in rest and rest["positions"].shape[1] < n_tokens:
        needed = f"{tokens_BP.shape[1]} tokens of the prompts and {method.max_tokens} new ones"
        raise UserError(f"positions: expected those of {needed}, got {rest['positions'].shape[1]}")
    if "positions" in rest:
        rest["positions"] = rest["positions"][:, :n_tokens]
    assert model.prefill is not None
    batch = {**rest, "inputs": inputs_BT[:, :-1], "lengths": lengths_B}
    state, cache = method.start(numbers_B, limits_B, model.prefill(params, batch, n_tokens))
    cache = cache.with_places(min(tokens_BP.shape[1] + method.room, cache.n_places))
    return Progress(cache, _by_row(last_B, cache), state, jnp.zeros(len(lengths_B), bool))


def step(model: Model, params: Params, method: Method, progress: Progress, idle_B: jax.Array | None = None) -> Progress:
    """Returns the progress after reading the newest token of each row and choosing the next.

    The state of prompts that are finished, idle or full does not change. Their cache may.
    """
    assert model.step is not None
    is_full_B = progress.is_full_B | progress.cache.is_full()
    finished_B = method.is_finished(progress.state) | is_full_B
    finished_B = finished_B if idle_B is None else idle_B | finished_B
    logits_RV, cache = model.step(params, progress.cache, progress.last_R)
    state, cache, tokens_R = method.choose(progress.state, cache, logits_RV)

    state = where_prompts(finished_B, progress.state, state)
    # The length of such a row stays, so its keys go to the same index again; beyond the last place they are dropped.
    stays_R = _by_row(finished_B | method.is_finished(state), cache)
    lengths_R = jnp.where(stays_R, progress.cache.lengths, cache.lengths)
    return Progress(dataclasses.replace(cache, lengths=lengths_R), tokens_R, state, is_full_B)


def where_prompts(condition_B: jax.Array, tree: Any, other: Any) -> Any:
    """Returns the elements of a tree of arrays [B, ...] for the prompts where the condition holds, else of another."""

    def where(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.where(condition_B.reshape(-1, *[1] * (x.ndim - 1)), x, y)

    return jax.tree.map(where, tree, other)


def _by_row(x_B: jax.Array, cache: Cache) -> jax.Array:
    """Returns the elements of the prompts, repeated for each row of the cache. The rows of a prompt are adjacent."""
    return jnp.repeat(x_B, len(cache.lengths) // len(x_B))
