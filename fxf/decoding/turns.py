"""Decoding of many prompts, which take turns in the slots of a cache, in one compiled loop."""

from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from fxf.decoding.steps import Method, Progress, Prompts, begin, decode, step
from fxf.models.model import Model
from fxf.weights import Params

# Prompts begin together when as many slots are free: one in so many, so that the model reads several at a time.
SHARE_OF_SLOTS = 8


@flax.struct.dataclass
class _Work:
    """What is done and what is left: S slots, the number of the prompt in each (N: none), and how many prompts wait."""

    slots: Progress
    number_S: jax.Array
    n_waiting: jax.Array
    outputs: Any

    def is_free(self, method: Method) -> jax.Array:
        return (self.number_S == self.n_rows()) | method.ended(self.slots.state)

    def n_rows(self) -> int:
        return len(jax.tree.leaves(self.outputs)[0])

    def can_fill(self, method: Method, n_together: int) -> jax.Array:
        """Tells whether the next prompts can begin, all that are left at the end; or whether all is done."""
        next_ones = jnp.minimum(n_together, self.n_waiting)
        return self.is_free(method).sum() >= jnp.where(self.n_waiting > 0, next_ones, len(self.number_S))

    def done(self, method: Method) -> jax.Array:
        return (self.n_waiting == 0) & self.is_free(method).all()

    def collected(self, method: Method) -> Any:
        """Returns the outputs, now with those of the slots that are free."""
        number_S = jnp.where(self.is_free(method), self.number_S, self.n_rows())
        return jax.tree.map(
            lambda all_N, ours_S: all_N.at[number_S].set(ours_S, mode="drop"),
            self.outputs,
            method.output(self.slots.state),
        )


def decode_in_turns(
    model: Model,
    params: Params,
    prompts: Prompts,
    method: Method,
    *,
    n_slots: int,
    n_prompts: jax.Array | int | None = None,
    spread: Callable[[Any], Any] = lambda rows: rows,
) -> Any:
    """Decodes N prompts as `decode` does, at most `n_slots` at a time. Call it under `jax.jit`.

    When one has ended the next takes its slot ("continuous batching", Yu et al. 2022), so that short ones do not wait
    for long ones.

    Args:
      n_prompts: how many of the prompts count, from the first; all if not given.
      spread: says which devices hold which rows of a tree of arrays.

    Returns what `decode` returns.
    """
    n_rows = len(prompts["tokens"])
    start_method = method.start
    method = method._replace(start=lambda numbers_B, cache: spread(start_method(numbers_B, cache)))
    if n_slots >= n_rows:  # no turns, and a program that compiles in half the time
        return decode(model, params, spread(jax.tree.map(jnp.asarray, prompts)), method)
    n_together = -(-n_slots // SHARE_OF_SLOTS)
    n_counted = jnp.int32(n_rows if n_prompts is None else n_prompts)

    def begin_some(numbers_B: jax.Array, max_tokens: int) -> Progress:
        some = spread({name: jnp.asarray(value)[numbers_B] for name, value in prompts.items()})
        return begin(model, params, some, method, numbers_B, max_tokens)

    # Free slots go to the next prompts. A new cache has the first places alone, for the prompt and one token more.
    def fill(work: _Work) -> _Work:
        turn_G = jnp.arange(n_together)
        number_G = n_counted - work.n_waiting + turn_G
        slot_G = jnp.argsort(~work.is_free(method))[:n_together]
        slot_G = jnp.where(turn_G < work.n_waiting, slot_G, n_slots)  # n_slots: nowhere
        new = begin_some(jnp.minimum(number_G, n_rows - 1), 1)
        return _Work(
            slots=spread(jax.tree.map(lambda all_R, new_R: _put(all_R, new_R, slot_G, n_slots), work.slots, new)),
            number_S=work.number_S.at[slot_G].set(number_G, mode="drop"),
            n_waiting=jnp.maximum(work.n_waiting - n_together, 0),
            outputs=work.collected(method),
        )

    def one_step(work: _Work) -> _Work:
        slots = step(model, params, method, work.slots, work.number_S == n_rows)
        return work.replace(slots=slots)  # type: ignore[attr-defined]

    def turn(work: _Work) -> _Work:
        return jax.lax.while_loop(lambda work: ~work.can_fill(method, n_together), one_step, fill(work))

    slots = jax.eval_shape(lambda: begin_some(jnp.arange(n_slots), method.max_tokens))
    one = jax.eval_shape(method.output, slots.state)
    outputs = jax.tree.map(lambda x: jnp.zeros((n_rows, *x.shape[1:]), x.dtype), one)
    slots = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), slots)
    start = _Work(slots, jnp.full(n_slots, n_rows), n_counted, outputs)
    return jax.lax.while_loop(lambda work: ~work.done(method), turn, start).collected(method)


def _put(whole_R: jax.Array, part_R: jax.Array, slot_G: jax.Array, n_slots: int) -> jax.Array:
    """Returns the arrays of S slots with those of G prompts in their slots. A prompt's rows lie together."""
    slots = whole_R.reshape(n_slots, len(whole_R) // n_slots, *whole_R.shape[1:])
    new = part_R.reshape(len(slot_G), len(part_R) // len(slot_G), *part_R.shape[1:])
    places = (slice(0, n) for n in new.shape[1:])
    return slots.at[slot_G, *places].set(new, mode="drop").reshape(whole_R.shape)
