"""Continuous batching: many prompts share the slots of a cache, in one compiled loop."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fxf.decoding.steps import Method, Progress, Prompts, begin, decode_batch, step
from fxf.models.model import Model
from fxf.weights import Params

# New prompts begin when this share of the slots is free, 1 / SHARE_OF_SLOTS, so the model reads several at a time.
SHARE_OF_SLOTS = 8


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Work:
    """The progress of X slots, and the outputs of all N prompts."""

    slots: Progress
    index_X: jax.Array  # the index of the prompt in each slot; N where there is none
    n_waiting: jax.Array
    n_full: jax.Array  # how many prompts have left their slots because the cache was full
    outputs: Any

    def is_free(self, method: Method) -> jax.Array:
        return (self.index_X == self.n_rows()) | self.slots.is_finished(method)

    def n_rows(self) -> int:
        return len(jax.tree.leaves(self.outputs)[0])

    def round_ends(self, method: Method, n_together: int) -> jax.Array:
        """Returns whether enough slots are free for the next prompts, or, if no prompt waits, whether all are free."""
        next_ones = jnp.minimum(n_together, self.n_waiting)
        return self.is_free(method).sum() >= jnp.where(self.n_waiting > 0, next_ones, len(self.index_X))

    def is_full(self, method: Method) -> jax.Array:
        """Returns in which slots the cache has no place left for a prompt that is not finished, bool [X]."""
        return (self.index_X < self.n_rows()) & self.slots.is_full_B & ~method.is_finished(self.slots.state)

    def done(self, method: Method, n_counted: jax.Array) -> jax.Array:
        """Returns whether no prompt is left, or more of them have filled the cache than have finished."""
        n_busy = (~self.is_free(method)).sum()
        n_ended, n_full = n_counted - self.n_waiting - n_busy, self.n_full + self.is_full(method).sum()
        return (self.n_waiting + n_busy == 0) | (2 * n_full > n_ended)

    def collected(self, method: Method) -> Any:
        """Returns the outputs with those of the free slots."""
        index_X = jnp.where(self.is_free(method), self.index_X, self.n_rows())
        return jax.tree.map(
            lambda outputs, new: outputs.at[index_X].set(new, mode="drop"),
            self.outputs,
            method.output(self.slots.state),
        )


def decode_in_slots(
    model: Model,
    params: Params,
    prompts: Prompts,
    method: Method,
    *,
    n_slots: int,
    n_prompts: jax.Array | int | None = None,
    shard_rows: Callable[[Any], Any] = lambda rows: rows,
) -> Any:
    """Returns what `decode_batch` returns for N prompts, decoding `n_slots` at a time. Call it under `jax.jit`.

    When a prompt is finished, a waiting one takes its slot ("continuous batching", Yu et al. 2022), so short prompts do
    not wait for long ones. If more prompts fill a cache than finish, the others are left: their outputs are zeros.

    Args:
      n_prompts: the number of prompts to decode, from the first; all by default.
      shard_rows: constrains, inside the program, how the devices share the rows of a tree of arrays.
    """
    n_rows = len(prompts["tokens"])
    method_start = method.start
    method = method._replace(start=lambda *of_prompts: shard_rows(method_start(*of_prompts)))
    if n_slots >= n_rows:  # `decode_batch` compiles in half the time
        return decode_batch(model, params, shard_rows(jax.tree.map(jnp.asarray, prompts)), method)
    n_together = -(-n_slots // SHARE_OF_SLOTS)
    n_counted = jnp.int32(n_rows if n_prompts is None else n_prompts)

    def begin_some(indices_B: jax.Array) -> Progress:
        some = shard_rows({name: jnp.asarray(value)[indices_B] for name, value in prompts.items()})
        return begin(model, params, some, method, indices_B)

    def fill(work: _Work) -> _Work:
        order_B = jnp.arange(n_together)
        index_B = n_counted - work.n_waiting + order_B
        slot_B = jnp.argsort(~work.is_free(method))[:n_together]
        # Index n_slots is out of range, so the update is dropped.
        slot_B = jnp.where(order_B < work.n_waiting, slot_B, n_slots)
        new = begin_some(jnp.minimum(index_B, n_rows - 1))
        return _Work(
            slots=shard_rows(jax.tree.map(lambda x, x_new: _put(x, x_new, slot_B, n_slots), work.slots, new)),
            index_X=work.index_X.at[slot_B].set(index_B, mode="drop"),
            n_waiting=jnp.maximum(work.n_waiting - n_together, 0),
            n_full=work.n_full + work.is_full(method).at[slot_B].get(mode="fill", fill_value=False).sum(),
            outputs=work.collected(method),
        )

    def one_step(work: _Work) -> _Work:
        slots = step(model, params, method, work.slots, work.index_X == n_rows)
        return dataclasses.replace(work, slots=slots)

    def one_round(work: _Work) -> _Work:
        return jax.lax.while_loop(lambda work: ~work.round_ends(method, n_together), one_step, fill(work))

    slots = jax.eval_shape(lambda: begin_some(jnp.arange(n_slots)))
    one = jax.eval_shape(method.output, slots.state)
    outputs = jax.tree.map(lambda x: jnp.zeros((n_rows, *x.shape[1:]), x.dtype), one)
    slots = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), slots)
    start = _Work(slots, jnp.full(n_slots, n_rows), n_counted, jnp.zeros_like(n_counted), outputs)
    return jax.lax.while_loop(lambda work: ~work.done(method, n_counted), one_round, start).collected(method)


def _put(x: jax.Array, x_new: jax.Array, slot_B: jax.Array, n_slots: int) -> jax.Array:
    """Returns an array of X slots with that of B prompts in their slots. The rows of a prompt are adjacent."""
    slots = x.reshape(n_slots, len(x) // n_slots, *x.shape[1:])
    new = x_new.reshape(len(slot_B), len(x_new) // len(slot_B), *x_new.shape[1:])
    return slots.at[slot_B].set(new, mode="drop").reshape(x.shape)
