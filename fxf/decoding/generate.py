"""Generation: prompts take turns in the slots of a cache, one cached step a token, in one compiled loop."""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp

from fxf.layers.cache import Cache
from fxf.models.model import Model
from fxf.weights import Params

# What to continue: int32 `tokens` [N, P], right-padded, of which row n holds `lengths[n]` (from 0 to P); where it is
# another than token 0, the token `first` [N] that a decoder reads in front of them; and whatever else the model's
# prefill reads, such as a `source`.
Prompts = dict[str, Any]

# Prompts begin together when as many slots are free: one in so many, so that the model reads several at a time.
SHARE_OF_SLOTS = 8


class Method(NamedTuple):
    """How tokens are chosen: pure functions on a state of B prompts, W hypotheses each: a tree of arrays [B, ...].

    Attributes:
      width: W.
      max_tokens: of the longest continuation.
      start: `start(numbers_B) -> state` of prompts without new tokens, given their places among all.
      choose: `choose(state, logits_BWV) -> (state, tokens_BW, parents_BW)`: the next token of each hypothesis, and
        the hypothesis before that it goes on from; None where each goes on from itself.
      ended: `ended(state)`, bool [B]: nothing more is to be chosen.
      output: `output(state)`, what is found: a tree of arrays [B, ...].
    """

    width: int
    max_tokens: int
    start: Callable[[jax.Array], Any]
    choose: Callable[[Any, jax.Array], tuple[Any, jax.Array, jax.Array | None]]
    ended: Callable[[Any], jax.Array]
    output: Callable[[Any], Any]


@flax.struct.dataclass
class _Slots:
    """S slots, each with a prompt at work.

    Attributes:
      cache: of S prompts.
      last_R: int32 [S · W], the newest token of each hypothesis, which is not in the cache yet.
      state: of the method.
    """

    cache: Cache
    last_R: jax.Array
    state: Any


@flax.struct.dataclass
class _Work:
    """What is done and what is left: the slots, the number of the prompt in each (N: none), and the next one's."""

    slots: _Slots
    number_S: jax.Array
    next_number: jax.Array
    outputs: Any


def generate(
    model: Model,
    params: Params,
    prompts: Prompts,
    method: Method,
    *,
    n_slots: int | None = None,
    n_prompts: jax.Array | int | None = None,
    spread: Callable[[Any], Any] = lambda rows: rows,
) -> Any:
    """Continues N prompts by a method. Call it under `jax.jit`.

    At most `n_slots` are at work at a time: when one has ended the next takes its slot ("continuous batching", Yu et
    al. 2022), so that short ones do not wait for long ones.

    Args:
      n_slots: N if not given.
      n_prompts: how many of the prompts count, from the first; all if not given.
      spread: says which devices hold which rows of a tree of arrays.

    Returns:
      The method's output for the prompts, a tree of arrays [N, ...].
    """
    assert model.step is not None
    step = model.step
    n_rows = len(prompts["tokens"])
    n_slots = min(n_slots or n_rows, n_rows)
    n_together = -(-n_slots // SHARE_OF_SLOTS)
    width = method.width

    def begin(numbers_B: jax.Array, max_tokens: int) -> _Slots:
        batch = spread({name: jnp.asarray(value)[numbers_B] for name, value in prompts.items()})
        return _Slots(*prefill(model, params, batch, max_tokens, width), method.start(numbers_B))

    def is_free(work: _Work) -> jax.Array:
        return (work.number_S == n_rows) | method.ended(work.slots.state)

    def n_waiting(work: _Work) -> jax.Array:
        return (n_rows if n_prompts is None else n_prompts) - work.next_number

    def collect(work: _Work) -> Any:
        """Returns the outputs, now with those of the slots that are free."""
        number_S = jnp.where(is_free(work), work.number_S, n_rows)
        return jax.tree.map(
            lambda all_N, ours_S: all_N.at[number_S].set(ours_S, mode="drop"),
            work.outputs,
            method.output(work.slots.state),
        )

    def fill(work: _Work) -> _Work:
        """Gives free slots to the next prompts."""
        turn_K = jnp.arange(n_together)
        number_K = work.next_number + turn_K
        slot_K = jnp.argsort(~is_free(work))[:n_together]
        slot_K = jnp.where(turn_K < n_waiting(work), slot_K, n_slots)  # n_slots: nowhere

        def put(whole: jax.Array, part: jax.Array) -> jax.Array:
            # A prompt's rows lie together. A new cache has the first places alone, for the prompt and one token more.
            slots = whole.reshape(n_slots, len(whole) // n_slots, *whole.shape[1:])
            new = part.reshape(n_together, len(part) // n_together, *part.shape[1:])
            places = (slice(0, n) for n in new.shape[1:])
            return slots.at[slot_K, *places].set(new, mode="drop").reshape(whole.shape)

        new = begin(jnp.minimum(number_K, n_rows - 1), 1)
        return _Work(
            slots=spread(jax.tree.map(put, work.slots, new)),
            number_S=work.number_S.at[slot_K].set(number_K, mode="drop"),
            next_number=work.next_number + jnp.minimum(n_together, n_waiting(work)),
            outputs=collect(work),
        )

    def one_token(work: _Work) -> _Work:
        slots, free_S = work.slots, is_free(work)
        logits_RV, cache = step(params, slots.cache, slots.last_R)
        state, tokens_SW, parents_SW = method.choose(slots.state, logits_RV.reshape(n_slots, width, -1))
        state = jax.tree.map(
            lambda old, new: jnp.where(free_S.reshape(-1, *[1] * (old.ndim - 1)), old, new), slots.state, state
        )
        # What has ended writes to the same places again and again, and not beyond the last one.
        stays_R = jnp.repeat(free_S | method.ended(state), width)
        cache = cache.replace(lengths=jnp.where(stays_R, slots.cache.lengths, cache.lengths))  # type: ignore[attr-defined]
        if parents_SW is not None:
            cache = cache.select(parents_SW)
        return work.replace(slots=_Slots(cache, tokens_SW.reshape(-1), state))  # type: ignore[attr-defined]

    def run(work: _Work) -> _Work:
        """Goes on until prompts can begin, or all is done."""

        def none_can_begin(work: _Work) -> jax.Array:
            waiting = n_waiting(work)
            needed = jnp.where(waiting > 0, jnp.minimum(n_together, waiting), n_slots)
            return is_free(work).sum() < needed

        return jax.lax.while_loop(none_can_begin, one_token, work)

    def unfinished(work: _Work) -> jax.Array:
        return (n_waiting(work) > 0) | ~is_free(work).all()

    if n_slots == n_rows:  # no turns, and a program that compiles in half the time
        number_S = jnp.arange(n_rows)
        work = _Work(spread(begin(number_S, method.max_tokens)), number_S, jnp.int32(n_rows), None)
        return method.output(run(work).slots.state)
    slots = jax.eval_shape(lambda: begin(jnp.arange(n_slots), method.max_tokens))
    outputs = jax.eval_shape(lambda: method.output(method.start(jnp.arange(n_rows))))
    slots, outputs = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), (slots, outputs))
    start = _Work(slots, jnp.full(n_slots, n_rows), jnp.int32(0), outputs)
    return collect(jax.lax.while_loop(unfinished, lambda work: run(fill(work)), start))


def prefill(model: Model, params: Params, prompts: Prompts, max_tokens: int, width: int = 1) -> tuple[Cache, jax.Array]:
    """Reads the prompts into a cache with room for `max_tokens` more in each of `width` hypotheses.

    Returns:
      The cache, and each row's last token, int32 [B · width], which is left to the first step: its logits choose the
      first new token.
    """
    rest = dict(prompts)
    tokens_BP, lengths_B = (jnp.asarray(rest.pop(name)) for name in ("tokens", "lengths"))
    first_B = jnp.asarray(rest.pop("first")) if "first" in rest else jnp.zeros_like(lengths_B)
    inputs_BT = jnp.concatenate([first_B[:, None], tokens_BP], axis=1)
    last_B = jnp.take_along_axis(inputs_BT, lengths_B[:, None], axis=1)[:, 0]
    batch = {**rest, "inputs": inputs_BT[:, :-1], "lengths": lengths_B}
    assert model.prefill is not None
    cache = model.prefill(params, batch, tokens_BP.shape[1] + max_tokens)
    if width == 1:
        return cache, last_B
    return cache.select(jnp.zeros((len(last_B), width), jnp.int32)), jnp.repeat(last_B, width)
