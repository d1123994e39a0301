"""The places of a cache that the hypotheses of a beam share, against lists of the tokens of each hypothesis."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fxf.layers.block import init_cache
from fxf.models.transformer_lm import TransformerLMConfig

N_PROMPTS, LENGTHS, ROOM = 3, [0, 2, 5], 5
WITH_NEW = jax.jit(lambda cache: cache.with_new(cache.as_tokens(cache.lengths)))
SELECT = jax.jit(lambda cache, parents: cache.select(parents))


def empty(**changes):
    config = TransformerLMConfig(n_layers=1, d_model=4, n_heads=2, max_len=9, **changes)
    return init_cache(config, jnp.array(LENGTHS, jnp.int32), ROOM)


def branching(width, n_places, n_steps, seed):
    """Yields a cache whose hypotheses branch at random, and what each place holds and each hypothesis has read.

    A token is a number that no other token has. Prompts take new tokens as long as their cache is not full.
    """
    rng, number = np.random.default_rng(seed), 1000
    cache = SELECT(empty(), np.zeros((N_PROMPTS, width), np.int32)).with_places(n_places)
    held = [{place: place for place in range(length)} for length in LENGTHS]
    texts = [[list(range(length)) for _ in range(width)] for length in LENGTHS]
    yield cache, held, texts
    for _ in range(n_steps):
        was_full = np.asarray(cache.is_full())
        cache, places_BW = WITH_NEW(cache)
        cache = dataclasses.replace(cache, lengths=cache.lengths + 1)
        for b, w in np.ndindex(N_PROMPTS, width):
            held[b][int(places_BW[b, w])] = number
            texts[b][w].append(number)
            number += 1
        if was_full.any():
            return
        yield cache, held, texts
        parents_BW = rng.integers(0, width, (N_PROMPTS, width))
        texts = [[list(texts[b][parent]) for parent in parents_BW[b]] for b in range(N_PROMPTS)]
        cache = SELECT(cache, parents_BW.astype(np.int32))
        yield cache, held, texts


@pytest.mark.parametrize(("width", "n_places", "seed"), [(2, 11, 0), (3, 13, 1), (5, 29, 2)])
def test_a_hypothesis_reads_its_own_tokens_each_at_its_index(width, n_places, seed):
    n_seen = 0
    for cache, held, texts in branching(width, n_places, 20, seed):
        indices_BC = np.asarray(cache.token_indices())
        for (b, w), places in zip(
            np.ndindex(N_PROMPTS, width), np.asarray(cache.reads_BWC).reshape(-1, n_places), strict=True
        ):
            read = sorted(np.flatnonzero(places).tolist(), key=lambda place, b=b: indices_BC[b, place])
            assert [held[b][place] for place in read] == texts[b][w]
            assert indices_BC[b, read].tolist() == list(range(len(texts[b][w])))
        n_seen += 1
    assert n_seen > 5


@pytest.mark.parametrize(("width", "seed"), [(2, 0), (5, 1)])
def test_a_cache_is_full_when_the_tokens_that_are_read_leave_no_place_for_one_of_each_hypothesis(width, seed):
    n_places, fulls = 5 * width + 3, []
    for cache, _, texts in branching(width, n_places, 20, seed):
        n_read = [len(set().union(*map(set, of_prompt))) for of_prompt in texts]
        fulls.append([n + width > n_places for n in n_read])
        np.testing.assert_array_equal(cache.is_full(), fulls[-1])
    assert np.any(fulls) and not np.all(fulls)


def test_a_single_hypothesis_has_its_tokens_in_order_until_all_places_are_taken():
    cache = empty()
    indices_1T = jnp.arange(4)[None]
    again, places = cache.with_new(indices_1T)
    assert again is cache and places is indices_1T
    assert SELECT(cache, np.zeros((N_PROMPTS, 1), np.int32)).reads_BWC is None
    np.testing.assert_array_equal(cache.is_full(), [False, False, True])
    np.testing.assert_array_equal(cache.token_indices(), [range(ROOM)])


def test_a_memory_of_constant_size_has_no_places_and_is_never_full():
    cache = empty(attention="linear", positions="none")
    assert cache.n_places == 0 and cache.with_places(3) is cache
    branched = SELECT(cache, np.zeros((N_PROMPTS, 4), np.int32))
    assert not branched.is_full().any() and branched.reads_BWC is None
    assert {len(x) for x in jax.tree.leaves(branched.blocks)} == {N_PROMPTS * 4}
