"""Decoding of any number of prompts: greedy, by sampling or by beam search."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fxf.base.errors import UserError
from fxf.base.memory import held_on_a_device
from fxf.base.on_gpu import DECODING, on_gpu
from fxf.base.random_keys import random_key, seed_of
from fxf.base.status import stage
from fxf.base.weights import Params
from fxf.base.work import by_threads, n_cores
from fxf.layers.cache import Cache
from fxf.models.beam import BeamSearch
from fxf.models.cast_once import cast_once
from fxf.models.decode_config import DecodeConfig
from fxf.models.model import Model
from fxf.models.rules import Rules, Words
from fxf.models.sampling import Sampling
from fxf.models.steps import PromptGroup, Prompts, by_length, where_prompts

# Maximum hypotheses of a chunk, and bytes of its cache, or a share of a GPU's or TPU's memory if that is more. Larger
# chunks read the weights less often.
HYPOTHESES, LARGEST_CACHE, LARGEST_SHARE = 320, 2**28, 1 / 16
# Most operations of a small model's step are too small for several cores. So each core of a CPU decodes a chunk of its
# own, if the weights have at most this many bytes and a chunk at least this many hypotheses.
SMALL_WEIGHTS, WORTHWHILE = 2**24, 8

# Tokens [N, W, max_tokens] of W hypotheses of each prompt, and their scores [N, W], or None without a beam search.
Decoded = tuple[np.ndarray, np.ndarray | None]
# The state of the search (a dataclass of arrays [B, ...]), the cache, and the newest token of each hypothesis, [B, W],
# which is not yet in the cache.
Progress = tuple[Any, Cache, jax.Array]


class Decoder:
    """Decodes prompts with programs that compile once for each shape, for any params.

    Tokens are int32 [N, W, U], the best hypothesis first; W is the beam's width and U is `max_tokens`. End tokens pad
    answers. Scores are [N, W], or None without a beam. The answers to a prompt do not depend on the
    other prompts.
    """

    def __init__(
        self,
        model: Model,
        end_token: Any,
        *,
        config: DecodeConfig = DecodeConfig(),
        seed: int = 0,
        words: Words = Words(),
        layout: Any = None,
        programs: dict[Any, Any] | None = None,
    ) -> None:
        """Makes the decoder; compiles nothing.

        Args:
          end_token: the token that ends an answer, or several, all of which are returned as the first one.
          words: what answers must and must not contain.
          layout: the `Layout` of the devices that share the work; None for one device.
          programs: a dict that holds the compiled programs.
        """
        self.model, self.config, self.words, self.layout = model, config, words, layout
        self.ends, self.key = np.ravel(np.asarray(end_token, np.int32)), random_key(seed_of(seed))
        self.options: Any = {"compiler_options": DECODING if on_gpu() else None}
        self.programs = {} if programs is None else programs

    def __call__(self, params: Params, prompts: Prompts, max_tokens: int) -> Decoded:
        """Returns (tokens, scores) of N prompts."""
        return self.groups(params, [PromptGroup((), prompts, max_tokens)])[0]

    def groups(self, params: Params, groups: Sequence[PromptGroup]) -> list[Decoded]:
        """Returns (tokens, scores) of each group. Prompts of similar lengths are decoded together, chunk by chunk."""
        jobs, outputs, chunks = [], [], [list[np.ndarray]() for _ in groups]
        n_threads = self._n_threads(params, sum(len(group.prompts["tokens"]) for group in groups))
        for group, of_group in zip(groups, chunks, strict=True):
            for places_n, part in by_length(group):
                prompts, static = part.whole(), {"max_tokens": part.max_tokens, "longest": longest_of(part)}
                size = self._at_once(params, prompts, static, max(1, n_threads))
                order = np.argsort(-prompts["limits"], kind="stable")  # answers with similar limits end together
                for first in range(0, len(order), size):
                    rows = np.resize(order[first : first + size], size)  # copies pad the last chunk
                    chunk = {name: np.asarray(value)[rows] for name, value in prompts.items()}
                    shape = (*static.values(), shapes_of(chunk))
                    if shape not in self.programs:  # which the threads share
                        self.programs[shape] = self.jitted.lower(params, chunk, self.key, **static).compile()
                    jobs.append((self.programs[shape], chunk))
                    of_group.append(places_n[rows])
        with stage("decoding", len(jobs)) as progress:
            run = lambda job: jax.device_get(job[0](params, job[1], self.key))  # noqa: E731
            for output in by_threads(run, jobs, n_threads) if n_threads else map(run, jobs):
                outputs.append(output)
                progress(len(outputs))
        return [restore_order(places, [outputs.pop(0) for _ in places]) for places in chunks]

    @functools.cached_property
    def jitted(self) -> Any:
        """`search`, jitted only where it compiles: a decoder is often made anew for programs that are there."""
        shardings = self.layout.replicated if self.layout else None  # each process reads all answers
        static = ("max_tokens", "longest")
        return jax.jit(self.search, static_argnames=static, out_shardings=shardings, **self.options)

    def search(
        self, params: Params, prompts: Prompts, key: jax.Array, *, max_tokens: int, longest: int = 0
    ) -> tuple[jax.Array, jax.Array | None]:
        """Returns (tokens, scores) of B prompts, all at once. Call it under `jax.jit`.

        Args:
          longest: the largest number of tokens of a prompt with its answer; 0: that of the longest prompt plus
            max_tokens.
        """
        prompts, whole = jax.tree.map(jnp.asarray, PromptGroup((), prompts, max_tokens).whole()), params
        if self.layout:
            _, params = self.layout.gather(self.model, params, pad=self.model.loss.of_logits)
            prompts = self.layout.shard(prompts)
        state, cache, last_BW = self.begin(params, prompts, key, max_tokens=max_tokens, longest=longest)
        cast, step = self.stepping(params, whole, cache, last_BW.reshape(-1))
        if self.layout:
            state, cache = self.layout.shard((state, cache))

        def unfinished(progress: Progress) -> jax.Array:
            return ~progress[0].is_finished_B.all()

        go_on = functools.partial(self.go_on, step, cast(params), prompts, key)
        state, *_ = jax.lax.while_loop(unfinished, go_on, (state, cache, last_BW))
        tokens, scores = self._method(prompts, key).output(state)
        return jnp.where(jnp.isin(tokens, self.ends), self.ends[0], tokens), scores

    def begin(self, params: Params, prompts: Prompts, key: jax.Array, *, max_tokens: int, longest: int) -> Progress:
        """Returns the progress after reading the prompts, which have all their arrays; arguments as of `search`."""
        method = self._method(prompts, key)
        state = method.start(prompts["numbers"], prompts["limits"], max_tokens)
        read = {name: value for name, value in prompts.items() if name not in ("numbers", "limits")}
        return (state, *prefill(self.model, params, read, method.width, max_tokens, longest))

    def stepping(self, params: Params, whole: Params, cache: Cache, tokens: jax.Array, model: Any = None) -> Any:
        """Returns `cast`, which turns params into the weights that `go_on` reads, and its `step`; see `cast_once`.

        Args:
          whole: the params before the vocabulary was padded.
          model: by default the decoder's.
        """
        model = model or self.model
        step = _without_padding(model.step, whole, cache, tokens) if self.layout and self.layout.pads else model.step
        return cast_once(step, params, cache, tokens, dtype=model.dtype)

    def go_on(self, step: Any, weights: Any, prompts: Prompts, key: jax.Array, progress: Progress) -> Progress:
        """Returns the progress after one more token of each hypothesis; `step` reads `weights`, as `stepping` says."""
        state, cache, last_BW = progress
        method = self._method(prompts, key)
        logits_RV, cache = step(weights, cache, last_BW.reshape(-1))
        new, parents_BW, last_BW = method.choose(state, logits_RV.reshape(*last_BW.shape, -1))
        # A finished prompt still writes to its cache: slots that nothing reads, or beyond the last, which are dropped.
        cache = cache.select(parents_BW) if method.width > 1 else cache
        return where_prompts(state.is_finished_B, state, new), cache, last_BW

    def stream(self, params: Params, group: PromptGroup) -> Iterator[list[int]]:
        """Yields all tokens so far of the group's only prompt, after each new one, without the end token."""
        prompts, (begin, go_on) = group.whole(), self._streaming
        progress = begin(params, prompts, self.key, max_tokens=group.max_tokens, longest=longest_of(group))
        # A cache that rolls may have the shapes of one that does not; the tree's structure says which it is.
        shape = ("step", jax.tree.structure(progress), *map(jnp.shape, jax.tree.leaves(progress)))
        if shape not in self.programs:
            _, cache, last_BW = progress
            self.programs[shape] = self.stepping(params, params, cache, last_BW.reshape(-1))
        cast, step = self.programs[shape]
        weights = cast(params)
        while not np.asarray(progress[0].is_finished_B).all():
            progress = go_on(step, weights, prompts, self.key, progress)
            # NumPy slices them, because JAX would compile a program for each number of tokens.
            tokens = np.asarray(progress[0].tokens_BU)[0, : np.asarray(progress[0].n_tokens_B)[0]].tolist()
            yield tokens[:-1] if tokens[-1] in self.ends else tokens

    @functools.cached_property
    def _streaming(self) -> tuple[Any, Any]:
        """`begin` and `go_on` of a stream, jitted."""
        begin = jax.jit(self.begin, static_argnames=("max_tokens", "longest"))
        return begin, jax.jit(self.go_on, static_argnames="step", donate_argnames="progress", **self.options)

    def _method(self, prompts: Prompts, key: jax.Array) -> Any:
        """Returns the method that chooses tokens, `BeamSearch` or `Sampling`, with W rows of the cache for each prompt.

        The state of a prompt no longer changes once its `is_finished_B` is true.
        """
        rules = Rules(self.config, self.ends, self.words, prompts)
        return BeamSearch(rules) if self.config.beam_width > 1 else Sampling(rules, key)

    def _n_threads(self, params: Params, n_prompts: int) -> int:
        """Returns how many chunks are decoded in parallel; 0: this thread decodes, as another would slow a few prompts.

        One thread is for long work, which a signal may then interrupt.
        """
        small = sum(weight.nbytes for weight in jax.tree.leaves(params)) <= SMALL_WEIGHTS
        if jax.default_backend() != "cpu" or (self.layout and self.layout.mesh.size > 1) or not small:
            return 1
        return min(n_cores(), n_prompts * self.config.beam_width // WORTHWHILE)

    def _at_once(self, params: Params, prompts: Prompts, static: dict[str, Any], n_threads: int) -> int:
        """Returns the number of prompts in a chunk: all, or as many as the bounds on hypotheses and cache allow."""
        largest_cache = max(LARGEST_CACHE, int(LARGEST_SHARE * held_on_a_device().get("device_bytes", 0)))
        most = min(HYPOTHESES // self.config.beam_width, largest_cache // self._cache_bytes(params, prompts, static))
        share_of_thread = -(-len(prompts["tokens"]) // n_threads)
        size = min(share_of_thread, max(1, most // n_threads))
        parts = self.layout.parts if self.layout else 1
        return -(-size // parts) * parts  # rows that the devices do not divide would be replicated

    def _cache_bytes(self, params: Params, prompts: Prompts, static: dict[str, Any]) -> int:
        """Returns the bytes of one prompt's cache, computed once for prompts of these shapes."""
        read_as = jax.dtypes.canonicalize_dtype  # int64 as int32
        row = {name: jax.ShapeDtypeStruct((1, *x.shape[1:]), read_as(x.dtype)) for name, x in prompts.items()}
        shape = ("cache", *static.values(), shapes_of(row))
        if shape not in self.programs:
            read = functools.partial(prefill, self.model, width=self.config.beam_width, **static)
            cache, _ = jax.eval_shape(read, params, row)
            self.programs[shape] = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(cache))
        return self.programs[shape]


def shapes_of(prompts: Prompts) -> tuple[Any, ...]:
    return tuple((name, x.shape) for name, x in sorted(prompts.items()))


def _without_padding(step: Any, whole: Params, *inputs: Any) -> Callable:
    """Returns a step that drops the logits of vocabulary padding; `whole` params have none."""
    n_logits = jax.eval_shape(step, whole, *inputs)[0].shape[-1]

    def unpadded(*arguments: Any) -> tuple[jax.Array, Cache]:
        logits_RV, cache = step(*arguments)
        return logits_RV[..., :n_logits], cache

    return unpadded


def prefill(
    model: Model, params: Params, prompts: Prompts, width: int, max_tokens: int, longest: int = 0
) -> tuple[Cache, jax.Array]:
    """Returns the cache of B prompts, with W rows each, and each row's newest token, int32 [B, W], not yet in it.

    Raises:
      UserError: the prompts have too few positions, or a prompt has more than model.max_len tokens.
    """
    inputs_BT = jnp.concatenate([prompts["first"][:, None], prompts["tokens"]], axis=1)
    n_read = inputs_BT.shape[1] - 1
    n_tokens = longest or n_read + max_tokens
    batch = {**prompts, "inputs": inputs_BT[:, :-1]}
    if "positions" in prompts:
        if prompts["positions"].shape[1] < n_tokens:
            needed = f"{n_read} tokens of the prompts and {max_tokens} new ones"
            raise UserError(f"positions: expected those of {needed}, got {prompts['positions'].shape[1]}")
        batch["positions"] = prompts["positions"][:, :n_tokens]
    assert model.prefill is not None
    room = (model.rolls and width == 1 and model.max_len) or n_tokens
    if n_read > room:
        raise UserError(f"prompt: {n_read} tokens; expected at most model.max_len {room}")
    cache = model.prefill(params, batch, min(n_tokens, room)).replace(rolling=n_tokens > room)
    last_B1 = jnp.take_along_axis(inputs_BT, prompts["lengths"][:, None], axis=1)
    last_BW = jnp.repeat(last_B1, width, axis=1)
    if width > 1:
        cache = cache.select(jnp.zeros_like(last_BW))
        cache = cache.with_slots(min(n_read + width * max_tokens, cache.n_slots))
    return cache, last_BW


def longest_of(group: PromptGroup) -> int:
    """Returns the largest number of tokens of a prompt with its answer; 0 where the prompts have no limits."""
    if "limits" not in group.prompts:
        return 0
    totals_N = np.asarray(group.prompts["lengths"]) + np.asarray(group.prompts["limits"])
    return max(group.prompts["tokens"].shape[1], int(totals_N.max()))


def restore_order(chunks: Sequence[np.ndarray], outputs: Sequence[Any]) -> Any:
    """Returns the outputs of chunks in the order of the prompts; a chunk has the indices of its prompts and copies."""
    _, first = np.unique(np.concatenate(chunks), return_index=True)
    return jax.tree.map(lambda *parts: np.concatenate(parts)[first], *outputs)
