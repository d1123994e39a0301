"""Cache slots that the hypotheses of a beam share, against lists of each hypothesis's tokens."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fxf.layers.cache import Cache
from fxf.layers.kinds import ATTENTIONS
from fxf.layers.layer import Slots
from fxf.testing import assert_cached_equals_full
from helpers import Newest, random_tokens, scaled, small_model

N_PROMPTS, LENGTHS, ROOM = 3, [0, 2, 5], 5
SELECT = jax.jit(lambda cache, parents: cache.select(parents))


@jax.jit
def with_new(cache):
    """Returns the cache with a slot for one more token of each row, and these slots [B, W]."""
    table = cache.table(lambda order, given: order)
    more = {"order_BC": table.places.order, "reads_BWC": table.reads_BWC, "lengths": cache.lengths + 1}
    return cache.replace(**more), table.at_BT


def branching(width, n_slots, n_steps, seed):
    """Yields a cache with randomly branching hypotheses, the tokens in its slots, and those that each hypothesis read.

    Each token is a unique number. Prompts take new tokens until their cache is full.
    """
    rng, number = np.random.default_rng(seed), 1000
    empty = Cache(Slots(jnp.zeros((N_PROMPTS, 2, ROOM, 1))), jnp.array(LENGTHS, jnp.int32))
    cache = SELECT(empty, np.zeros((N_PROMPTS, width), np.int32)).with_slots(n_slots)
    held = [{slot: slot for slot in range(length)} for length in LENGTHS]
    texts = [[list(range(length)) for _ in range(width)] for length in LENGTHS]
    yield cache, held, texts
    for _ in range(n_steps):
        was_full = (~np.asarray(cache.reads_BWC).any(axis=1)).sum(axis=1) < width
        cache, slots_BW = with_new(cache)
        for b, w in np.ndindex(N_PROMPTS, width):
            held[b][int(slots_BW[b, w])] = number
            texts[b][w].append(number)
            number += 1
        if was_full.any():
            return
        yield cache, held, texts
        parents_BW = rng.integers(0, width, (N_PROMPTS, width))
        texts = [[list(texts[b][parent]) for parent in parents_BW[b]] for b in range(N_PROMPTS)]
        cache = SELECT(cache, parents_BW.astype(np.int32))
        yield cache, held, texts


@pytest.mark.parametrize(("width", "n_slots", "seed"), [(2, 11, 0), (5, 29, 2)])
def test_a_hypothesis_reads_its_own_tokens_each_at_its_index(width, n_slots, seed):
    n_seen = 0
    for cache, held, texts in branching(width, n_slots, 20, seed):
        order_BC, reads = np.asarray(cache.order_BC), np.asarray(cache.reads_BWC).reshape(-1, n_slots)
        for (b, w), slots in zip(np.ndindex(N_PROMPTS, width), reads, strict=True):
            read = sorted(np.flatnonzero(slots).tolist(), key=lambda slot, b=b: order_BC[b, slot])
            assert [held[b][slot] for slot in read] == texts[b][w]
            assert order_BC[b, read].tolist() == list(range(len(texts[b][w])))
        n_seen += 1
    assert n_seen > 5


@pytest.mark.parametrize("n_hypotheses", [1, 2])
def test_attention_that_needs_the_order_of_tokens_has_it_in_any_slots(n_hypotheses, monkeypatch):
    monkeypatch.setitem(ATTENTIONS, "newest", Newest)
    model, params = small_model(attention="newest", positions="alibi")
    batch, options = {"inputs": random_tokens((2, 8))}, {"capacities": [9], "n_hypotheses": n_hypotheses}
    assert_cached_equals_full(model, scaled(params, 2), batch, **options)
