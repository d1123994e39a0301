"""Decoding of any number of prompts, by programs of few shapes that compile once each."""

import functools
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fxf.decoding.beam import beam_search
from fxf.decoding.config import DecodeConfig
from fxf.decoding.sampling import sampling
from fxf.decoding.slots import decode_in_slots
from fxf.decoding.steps import Method, Progress, PromptGroup, Prompts, begin, longest_of, within
from fxf.machine.compiled import CompiledByShape
from fxf.machine.random_keys import random_key
from fxf.machine.status import stage
from fxf.machine.work import by_threads, n_cores
from fxf.models.model import Model
from fxf.weights import Params, shapes

HYPOTHESES = 320  # decoded at a time; more if each slot has at least PROMPTS_PER_SLOT prompts
# Most operations of a step of a small model are too small for several cores, so each core of a CPU decodes a stream of
# prompts by a program of its own: if a stream has so many hypotheses, and the weights have at most so many bytes.
WORTHWHILE, SMALL_WEIGHTS = 8, 2**24
PROMPTS_PER_SLOT = 8
OF_THEIR_OWN = 8  # tokens that one hypothesis of a beam reads alone: nearly always less than so many of each
LARGEST_CACHE = 2**28  # bytes

# Tokens [N, W, max_tokens] of W hypotheses of each prompt; and their scores [N, W], or None without a beam search.
Decoded = tuple[np.ndarray, np.ndarray | None]


class Placement(NamedTuple):
    """How devices share the work of a decoder.

    Attributes:
      gather, shard_rows: constrain, inside the program, how devices share the params and the rows of a batch.
      out_shardings: the sharding of the outputs, as in `jax.jit`.
      n_devices: the number of these devices.
    """

    gather: Callable[[Params], Params] = lambda params: params
    shard_rows: Callable[[Any], Any] = lambda rows: rows
    out_shardings: Any = None
    n_devices: int = 1


class Decoder:
    """Decodes any number of prompts by programs that compile once for each shape, and serve all params.

    Tokens are int32 [N, W, U], the best hypothesis first; W is the beam's width and U is `max_tokens`. End tokens fill
    the places after an end token. Scores are [N, W], or None without a beam.
    """

    def __init__(
        self,
        model: Model,
        end_token: Any,
        *,
        config: DecodeConfig = DecodeConfig(),
        seed: int = 0,
        compiling: Callable[[], AbstractContextManager] = nullcontext,
        placement: Placement = Placement(),
        programs: dict[Any, Any] | None = None,
    ) -> None:
        """Makes the decoder; compiles nothing.

        Args:
          compiling: returns a context that is entered while a program compiles, to count that time apart.
          placement: how devices share the work; by default one device does it.
          programs: keeps what is computed once for each shape: the programs, and the bytes of a prompt's cache.
        """
        self.model, self.placement, self.width, self.key = model, placement, config.beam_width, random_key(seed)
        self.method = functools.partial(method_of, end_token, config)
        self.row_bytes = programs = {} if programs is None else programs
        self.search = CompiledByShape(decoding_program(model, self.method, placement), compiling, programs)

    def __call__(self, params: Params, prompts: Prompts, max_tokens: int) -> Decoded:
        """Returns (tokens, scores) of N prompts."""
        return self.groups(params, [PromptGroup((), prompts, max_tokens)])[0]

    def groups(self, params: Params, groups: Sequence[PromptGroup]) -> list[Decoded]:
        """Returns (tokens, scores) of each group."""
        are_many = sum(len(group.prompts["tokens"]) for group in groups) * self.width > HYPOTHESES
        groups = [
            group._replace(prompts=_numbered(group), room=self._room(group) if are_many else 0) for group in groups
        ]
        decoded, left = [], []
        for group, answers in zip(groups, self._found(params, groups), strict=True):
            answers, enough_N = answers if group.room else (answers, np.ones(len(answers[0]), bool))
            decoded.append(answers)
            left.append(np.flatnonzero(~enough_N))
        # Where many of a group need more room, the group has programs of its own again; a few of all groups share one.
        crowded = [number for number, rows in enumerate(left) if len(rows) * self.width > HYPOTHESES]
        wholes = [_some(groups[number], left[number]) for number in crowded]
        for number, answers in zip(crowded, self._found(params, wholes) if wholes else [], strict=True):
            jax.tree.map(functools.partial(_put, left[number]), decoded[number], answers)
            left[number] = left[number][:0]
        self._decode_again(params, groups, decoded, left)
        return decoded

    def _decode_again(
        self, params: Params, groups: Sequence[PromptGroup], decoded: list[Decoded], left: list[np.ndarray]
    ) -> None:
        """Decodes the prompts left in each group in twice the room, then in all, and writes what it finds."""
        again = [(number, place) for number, rows in enumerate(left) for place in rows.tolist()]
        roomed = [group for group in groups if group.room]
        for room in (2 * max((group.room for group in roomed), default=0), 0):
            if not again:
                return
            joined = _joined(roomed, [(groups[number], place) for number, place in again])
            joined = joined._replace(room=room if room < self._whole_room(joined) else 0)
            (answers,) = self._found(params, [joined])
            (tokens_NWU, scores_NW), enough_N = answers if joined.room else (answers, np.ones(len(again), bool))
            for row in np.flatnonzero(enough_N[: len(again)]).tolist():
                number, place = again[row]
                tokens, scores = decoded[number]
                tokens[place] = tokens_NWU[row, :, : groups[number].max_tokens]
                if scores is not None:
                    scores[place] = scores_NW[row]
            again = [one for one, is_enough in zip(again, enough_N, strict=False) if not is_enough]

    def _whole_room(self, group: PromptGroup) -> int:
        """Returns the number of places of a cache with room for all new tokens of a prompt."""
        return self.width * group.max_tokens

    def _room(self, group: PromptGroup) -> int:
        """Returns the number of places that is enough for nearly all prompts, or 0 where it is not below all."""
        room = (group.room or group.max_tokens) + (OF_THEIR_OWN * self.width if self.width > 1 else 0)
        return room if room < self._whole_room(group) and "positions" not in group.prompts else 0

    def _found(self, params: Params, groups: Sequence[PromptGroup]) -> list[Any]:
        """Returns (tokens, scores) of each group, or, if it has a room, that and which prompts it was enough for."""
        works = [self._work(params, group) for group in groups]
        # Those that may take many steps begin first, so that none runs on alone.
        order = sorted(range(len(groups)), key=lambda i: -groups[i].max_tokens)
        tasks = [(works[i], chunk) for i in order for chunk in works[i].chunks]
        with stage("decoding", sum(len(chunk) for _, chunk in tasks)) as progress:
            n_streams = max(work.n_streams for work in works)
            found = by_threads(lambda task: task[0].search(task[1]), tasks, n_streams)
            for (work, chunk), outputs in zip(tasks, found, strict=True):
                work.outputs.append(outputs)
                progress.advance(len(chunk))
        return [work.whole() for work in works]

    def _work(self, params: Params, group: PromptGroup) -> "_Work":
        """Returns a group's chunks of prompts, and the compiled search for one."""
        prompts, max_tokens, room, longest = group.prompts, group.max_tokens, group.room, longest_of(group.prompts)
        n_prompts = len(prompts["tokens"])
        row_shape = (max_tokens, room, longest, *((name, value.shape[1:]) for name, value in sorted(prompts.items())))
        if row_shape not in self.row_bytes:
            method = within(self.method(max_tokens, self.key)._replace(longest=longest), room)
            self.row_bytes[row_shape] = _cache_bytes(self.model, prompts, method)
        n_streams = _n_streams(params, n_prompts, self.width, self.placement)
        of_stream = -(-n_prompts // n_streams)
        n_slots = _n_slots(of_stream, self.width, self.row_bytes[row_shape], n_streams)
        n_rows = n_slots if of_stream == n_slots else n_slots * 2 * PROMPTS_PER_SLOT
        n_chunks = n_streams * -(-of_stream // n_rows)
        chunks = [np.arange(first, n_prompts, n_chunks) for first in range(n_chunks)]

        def prompts_of(chunk: np.ndarray) -> Prompts:
            # Copies of the last prompt fill up the rows; they are not decoded.
            rows = chunk[np.minimum(np.arange(n_rows), len(chunk) - 1)]
            return {name: np.asarray(value)[rows] for name, value in prompts.items()}

        def search(chunk: np.ndarray) -> Any:
            found = compiled(params, prompts_of(chunk), np.int32(len(chunk)), self.key)
            return jax.tree.map(lambda x: np.array(x[: len(chunk)]), jax.device_get(found))

        static = {"max_tokens": max_tokens, "n_slots": n_slots, "room": room, "longest": longest}
        compiled = self.search.program(params, prompts_of(chunks[0]), np.int32(0), self.key, **static)
        return _Work(chunks, n_streams, search, [])


class _Work(NamedTuple):
    """The work for a group: its chunks of prompts, which so many streams share, and the outputs that are there."""

    chunks: list[np.ndarray]
    n_streams: int
    search: Callable[[np.ndarray], Any]
    outputs: list[Any]

    def whole(self) -> Any:
        """Returns the outputs in the order of the prompts."""
        order = np.argsort(np.concatenate(self.chunks))
        return jax.tree.map(lambda *parts: np.concatenate(parts)[order], *self.outputs)


def _numbered(group: PromptGroup) -> Prompts:
    places = group.places if len(group.places) else range(len(group.prompts["tokens"]))
    return {"numbers": np.array(places, np.int32), **group.prompts}


def _some(group: PromptGroup, rows: np.ndarray) -> PromptGroup:
    """Returns some prompts of a group, with room for all new tokens."""
    return group._replace(prompts={name: np.asarray(value)[rows] for name, value in group.prompts.items()}, room=0)


def _put(rows: np.ndarray, x: np.ndarray, x_new: np.ndarray) -> None:
    x[rows] = x_new


def _joined(groups: Sequence[PromptGroup], chosen: Sequence[tuple[PromptGroup, int]]) -> PromptGroup:
    """Returns one group of chosen prompts, with padding up to the largest shapes of all groups.

    Copies make their number a power of four, so that a few programs serve any number.
    """
    copied = [chosen[i % len(chosen)] for i in range(4 ** max(1, math.ceil(math.log(len(chosen), 4))))]
    prompts = {}
    for name in groups[0].prompts:
        shapes = zip(*(np.shape(group.prompts[name])[1:] for group in groups), strict=True)
        values = [np.asarray(group.prompts[name][place]) for group, place in copied]
        prompts[name] = np.zeros((len(copied), *map(max, shapes)), values[0].dtype)
        for row, value in enumerate(values):
            beginning: Any = (row, *(slice(n) for n in value.shape))
            prompts[name][beginning] = value
    limits = [
        group.prompts["limits"][place] if "limits" in group.prompts else group.max_tokens for group, place in copied
    ]
    prompts["limits"] = np.array(limits, np.int32)
    return PromptGroup((), prompts, max(group.max_tokens for group in groups))


def decoding_program(
    model: Model, method: Callable[[int, jax.Array], Method], placement: Placement = Placement()
) -> Any:
    """Returns the jitted `run(params, prompts, n_prompts, key, max_tokens=…, n_slots=…, …)` of a decoder."""

    def run(
        params: Params,
        prompts: Prompts,
        n_prompts: jax.Array,
        key: jax.Array,
        *,
        max_tokens: int,
        n_slots: int,
        room: int = 0,
        longest: int = 0,
    ) -> Any:
        chosen = within(method(max_tokens, key)._replace(longest=longest), room)
        of_slots: Any = {"n_slots": n_slots, "n_prompts": n_prompts, "shard_rows": placement.shard_rows}
        return decode_in_slots(model, placement.gather(params), prompts, chosen, **of_slots)

    return jax.jit(
        run, static_argnames=("max_tokens", "n_slots", "room", "longest"), out_shardings=placement.out_shardings
    )


def method_of(end_token: Any, config: DecodeConfig, max_tokens: int, key: jax.Array) -> Method:
    """Returns the method that the `decode` section names; `key` is that of sampling."""
    if config.beam_width > 1:
        return beam_search(max_tokens, end_token, config)
    return sampling(max_tokens, end_token, config, key)


def _n_streams(params: Params, n_prompts: int, width: int, placement: Placement) -> int:
    """Returns how many programs run side by side, each on a share of the prompts: one for each core of a CPU."""
    n_streams = min(n_cores(), n_prompts, n_prompts * width // WORTHWHILE)
    if n_streams <= 1 or jax.default_backend() != "cpu" or placement.n_devices > 1:
        return 1
    n_bytes = sum(weight.nbytes for weight in jax.tree.leaves(params))
    return n_streams if n_bytes <= SMALL_WEIGHTS else 1


def _n_slots(n_prompts: int, width: int, row_bytes: int, n_streams: int) -> int:
    """Returns how many prompts a stream decodes at a time. Similar numbers of prompts have the same program."""
    many = 2 ** int(math.log2(max(n_prompts // PROMPTS_PER_SLOT, 1)))
    limit = LARGEST_CACHE // (row_bytes * n_streams)
    return min(n_prompts, max(1, min(max(HYPOTHESES // (width * n_streams), many), limit)))


def _cache_bytes(model: Model, prompts: Prompts, method: Method) -> int:
    """Returns the size of one prompt's cache in bytes, without allocating it."""
    row = {name: jax.ShapeDtypeStruct((1, *value.shape[1:]), value.dtype) for name, value in prompts.items()}
    params = shapes(model.spec, model.weights_dtype)

    def one(params: Params, prompt: Prompts) -> Progress:
        return begin(model, params, prompt, method, jnp.zeros(1, jnp.int32))

    start = jax.eval_shape(one, params, row)
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(start.cache))
