"""Memories that fade, in chunks of products, against the recurrence of one token after the other in float64."""

import jax.numpy as jnp
import numpy as np
import pytest

from closeness import assert_as_by_hand
from fxf.layers import recurrence
from fxf.layers.layer import Context, Places
from fxf.layers.recurrence import fading_memory, log_decays
from memories import memory_of

R, T, G, E, K, O = 2, 23, 2, 3, 5, 4  # noqa: E741


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(recurrence, "CHUNK", 8)  # 23 tokens are 3 chunks, of which the last is not full


def drawn(kind, seed=0):
    """Returns queries, keys, values, log decays, β and a memory, all random; `kind` says how they are special."""
    rng = np.random.default_rng(seed)
    q, k, v = (rng.normal(size=(R, T, G, *rest)) for rest in ((K,), (K,), (E, O)))
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    log_decay, beta = -rng.exponential(size=(R, T, G, E)), rng.uniform(0, 1, (R, T, G, E))
    if kind == "one key, nothing fades":  # the powers of L are as large as binomial coefficients
        k[:], log_decay[:], beta[:] = k[:1, :1, :1], 0, 1
    if kind == "reflected":
        beta += 1
    if kind == "some tokens fade all":
        log_decay *= rng.choice([1e-3, 300.0], log_decay.shape)
    if kind == "some tokens forget":
        log_decay[:, ::5] = -np.inf
    return [x.astype(np.float32) for x in (q, k, v, log_decay, beta, rng.normal(size=(R, G, E, K, O)))]


def test_all_is_forgotten_at_the_first_token_of_a_document_and_nothing_at_padding():
    documents = jnp.array([[1, 0, 1, 2, 2], [3, 3, 0, 1, 1]])
    context = Context(Places(jnp.arange(5)[None], documents=documents))
    found = log_decays(context, -jnp.ones((2, 5, 1, 1))).reshape(2, 5)
    np.testing.assert_array_equal(found, [[-1, 0, -1, -np.inf, -1], [-1, -1, 0, -np.inf, -1]])


def expected(q, k, v, log_decay, beta, before):
    read, after = np.zeros((R, T, G, E, O)), np.zeros((R, G, E, K, O))
    for r, g, e in np.ndindex(R, G, E):
        decay, own = np.exp(np.float64(log_decay[r, :, g, e])), None if beta is None else beta[r, :, g, e]
        read[r, :, g, e], after[r, g, e] = memory_of(
            *(np.float64(x) for x in (q[r, :, g], k[r, :, g], v[r, :, g, e])), decay, own, before[r, g, e]
        )
    return read, after


KINDS = ("usual", "one key, nothing fades", "reflected", "some tokens fade all", "some tokens forget")


@pytest.mark.parametrize(("kind", "corrects"), [*((kind, True) for kind in KINDS), ("usual", False)])
def test_chunks_read_what_single_tokens_read_and_so_is_the_derivative(kind, corrects):
    arrays = drawn(kind)
    assert_as_by_hand(fading_memory, expected, arrays if corrects else [*arrays[:4], None, arrays[5]])
