"""Decoding step by step: the model reads the newest token of each row, and a method chooses the next one."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

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


class Method(NamedTuple):
    """A way to choose tokens: pure functions on the state of B prompts, a tree of arrays [B, ...].

    The cache has R rows. Each prompt has one row, or as many rows as `start` gives it.

    Attributes:
      max_tokens: the largest number of new tokens.
      start: `start(numbers_B, limits_B, cache)` returns the state and the cache of prompts without new tokens.
      choose: `choose(state, cache, logits_RV)` returns the state, the cache and the next token of each row, int32 [R].
      is_finished: `is_finished(state)` returns whether a prompt has all its tokens, bool [B].
      output: `output(state)` returns the result, a tree of arrays [B, ...].
      n_tokens: `n_tokens(state)` returns the number of new tokens of each prompt, int32 [B].
      room: number of new tokens of a prompt for which the cache has room; 0 for `max_tokens`.
    """

    max_tokens: int
    start: Callable[[jax.Array, jax.Array, Cache], tuple[Any, Cache]]
    choose: Callable[[Any, Cache, jax.Array], tuple[Any, Cache, jax.Array]]
    is_finished: Callable[[Any], jax.Array]
    output: Callable[[Any], Any]
    n_tokens: Callable[[Any], jax.Array]
    room: int = 0


class PromptGroup(NamedTuple):
    """Prompts that are decoded together.

    Attributes:
      places: the indices of their texts, which decoding does not read.
      max_tokens: the largest number of new tokens.
      room: the number of new tokens that is enough for nearly all; 0 if unknown. Where the prompts of all groups are
        many, they are decoded in a cache with so much room, whose steps are faster, and those that need more again.
    """

    places: Sequence[int]
    prompts: Prompts
    max_tokens: int
    room: int = 0


def within(method: Method, room: int) -> Method:
    """Returns the method for a cache with room for so many new tokens of a prompt, fewer than `max_tokens`.

    A prompt that needs more ends there. The output is that of the method, and whether it counts, bool [B].
    """

    def is_finished(state: Any) -> jax.Array:
        return method.is_finished(state) | (method.n_tokens(state) >= room)

    def output(state: Any) -> Any:
        return method.output(state), method.is_finished(state)

    return method._replace(is_finished=is_finished, output=output, room=room)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Progress:
    """The progress of B prompts: their cache with R rows, the newest token of each row, and the method's state.

    The newest token is not in the cache yet.
    """

    cache: Cache
    last_R: jax.Array
    state: Any


def decode_batch(model: Model, params: Params, prompts: Prompts, method: Method) -> Any:
    """Returns the method's output for N prompts, a tree of arrays [N, ...]. Call it under `jax.jit`."""

    def unfinished(progress: Progress) -> jax.Array:
        return ~method.is_finished(progress.state).all()

    def one_step(progress: Progress) -> Progress:
        return step(model, params, method, progress)

    start = begin(model, params, prompts, method, jnp.arange(len(prompts["tokens"])), room_of(method))
    return method.output(jax.lax.while_loop(unfinished, one_step, start).state)


def room_of(method: Method) -> int:
    """Returns the number of new tokens of a prompt for which the cache of a method has room."""
    return method.room or method.max_tokens


def begin(model: Model, params: Params, prompts: Prompts, method: Method, indices_B: jax.Array, room: int) -> Progress:
    """Returns the progress of prompts that have been read into a cache with room for so many tokens more.

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
    if "positions" in rest and rest["positions"].shape[1] < tokens_BP.shape[1] + method.max_tokens:
        needed = f"{tokens_BP.shape[1]} tokens of the prompts and {method.max_tokens} new ones"
        raise UserError(f"positions: expected those of {needed}, got {rest['positions'].shape[1]}")
    if "positions" in rest:
        rest["positions"] = rest["positions"][:, : tokens_BP.shape[1] + room_of(method)]
    assert model.prefill is not None
    batch = {**rest, "inputs": inputs_BT[:, :-1], "lengths": lengths_B}
    cache = model.prefill(params, batch, tokens_BP.shape[1] + room)
    state, cache = method.start(numbers_B, limits_B, cache)
    return Progress(cache, _by_row(last_B, cache), state)


def step(model: Model, params: Params, method: Method, progress: Progress, idle_B: jax.Array | None = None) -> Progress:
    """Returns the progress after reading the newest token of each row and choosing the next.

    The state of finished and idle prompts does not change. Their cache may change where no query reads it.
    """
    assert model.step is not None
    finished_B = method.is_finished(progress.state) if idle_B is None else idle_B | method.is_finished(progress.state)
    logits_RV, cache = model.step(params, progress.cache, progress.last_R)
    state, cache, tokens_R = method.choose(progress.state, cache, logits_RV)

    def unless_finished(old: jax.Array, new: jax.Array) -> jax.Array:
        return jnp.where(finished_B.reshape(-1, *[1] * (old.ndim - 1)), old, new)

    state = jax.tree.map(unless_finished, progress.state, state)
    # The length of a finished row stays, so its keys go to the same indices again and never beyond the last one.
    stays_R = _by_row(finished_B | method.is_finished(state), cache)
    lengths_R = jnp.where(stays_R, progress.cache.lengths, cache.lengths)
    return Progress(dataclasses.replace(cache, lengths=lengths_R), tokens_R, state)


def _by_row(x_B: jax.Array, cache: Cache) -> jax.Array:
    """Returns the elements of the prompts, repeated for each row of the cache. The rows of a prompt are adjacent."""
    return jnp.repeat(x_B, len(cache.lengths) // len(x_B))
