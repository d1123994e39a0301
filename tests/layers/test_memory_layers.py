"""Decaying memories, computed in chunks, and their layers, against their papers' recurrences in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit as sigmoid

import oracle
from closeness import assert_as_by_hand
from fxf.layers import recurrence
from fxf.layers.config import TransformerConfig
from fxf.layers.layer import Context, Places
from fxf.layers.memory_layers import GatedDelta, Mamba2
from fxf.layers.recurrence import fading_memory, log_decays
from fxf.models.transformer_lm import TransformerLMConfig, transformer_lm
from fxf.testing import assert_cached_equals_full
from helpers import random_params, random_tokens


def silu(x):
    return x * sigmoid(x)


def memory_of(q, k, v, decay, beta, before):
    """Returns the outputs of a head's memory, and its final state: q, k [T, K], v [T, O], decay, beta [T]."""
    memory, read = np.array(before, np.float64), []
    for t in range(len(q)):
        memory = decay[t] * memory
        u = v[t] if beta is None else beta[t] * (v[t] - k[t] @ memory)
        memory = memory + np.outer(k[t], u)
        read.append(q[t] @ memory)
    return np.stack(read), memory


def convolution(taps, x):
    """Returns Σ_i taps[i] x[t - n + 1 + i] of inputs [T, channels]."""
    n = len(taps)
    return np.stack([sum(taps[n - 1 - lag] * x[t - lag] for lag in range(min(n, t + 1))) for t in range(len(x))])


def heads_of(weights, name, x):
    """Returns queries, keys or values after their convolution, [T, G, …]."""
    weight, taps = weights[name], weights[f"{name}_taps"]
    rows = x @ weight.reshape(len(weight), -1)
    mixed = convolution(taps.reshape(len(taps), -1), rows) + weights.get(f"{name}_taps_bias", np.zeros(1)).reshape(-1)
    return silu(mixed).reshape(len(x), *weight.shape[1:])


def gated_delta(config, weights, x):
    """Gated DeltaNet of one document [T, D] (Yang et al. 2024, equation 10)."""
    q, k, v = (heads_of(weights, name, x) for name in ("query", "key", "value"))
    q, k = (h / np.sqrt(np.square(h).sum(-1, keepdims=True) + 1e-6) for h in (q, k))
    y = np.zeros(x.shape)
    for g, e in np.ndindex(v.shape[1:3]):
        step = np.logaddexp(0, x @ weights["step"][:, g, e] + weights["step_bias"][g, e])
        decay, beta = np.exp(-np.exp(weights["log_rate"][g, e]) * step), sigmoid(x @ weights["beta"][:, g, e])
        nothing = np.zeros((q.shape[-1], v.shape[-1]))
        read, _ = memory_of(q[:, g] / np.sqrt(q.shape[-1]), k[:, g], v[:, g, e], decay, beta, nothing)
        gate = silu(x @ weights["gate"][:, g, e])
        y += (oracle.unit_mean_square(config, read) * weights["scale"] * gate) @ weights["output"][g, e]
    return y


def mamba2(config, weights, x):
    """Mamba-2 of one document [T, D] (Dao and Gu 2024, equation 2 with a scalar A, and section 7)."""
    q, k, v = (heads_of(weights, name, x) for name in ("query", "key", "value"))
    gated = np.zeros(v.shape)
    for g, e in np.ndindex(v.shape[1:3]):
        step = np.logaddexp(0, x @ weights["step"][:, g, e] + weights["step_bias"][g, e])
        decay, nothing = np.exp(-np.exp(weights["log_rate"][g, e]) * step), np.zeros((k.shape[-1], v.shape[-1]))
        read, _ = memory_of(q[:, g], k[:, g], step[:, None] * v[:, g, e], decay, None, nothing)
        gate = silu(x @ weights["gate"][:, g, e])
        gated[:, g, e] = (read + weights["skip"][g, e] * v[:, g, e]) * gate
    whole = oracle.unit_mean_square(config, gated.reshape(*gated.shape[:2], -1))
    normalized = whole.reshape(gated.shape) * weights["scale"]
    return normalized.reshape(len(x), -1) @ weights["output"].reshape(-1, x.shape[-1])


R, T, D = 2, 13, 7
G, E, K, O = 2, 3, 5, 4  # noqa: E741


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(recurrence, "CHUNK", 4)  # 13 tokens are 4 chunks, the last not full


def drawn(kind, seed=0):
    """Returns queries, keys, values, log decays, β and a memory, all random; `kind` says how they are special."""
    rng = np.random.default_rng(seed)
    q, k, v = (rng.normal(size=(R, T, G, *rest)) for rest in ((K,), (K,), (E, O)))
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    log_decay, beta = -rng.exponential(size=(R, T, G, E)), rng.uniform(0, 1, (R, T, G, E))
    if kind == "one key, nothing fades":  # the powers of L are as large as binomial coefficients
        k[:], log_decay[:], beta[:] = k[:1, :1, :1], 0, 1
    if kind == "some tokens forget, reflected":
        beta += 1
        log_decay *= rng.choice([1e-3, 300.0], log_decay.shape)  # some decay completely
        log_decay[:, ::5] = -np.inf
    return [x.astype(np.float32) for x in (q, k, v, log_decay, beta, rng.normal(size=(R, G, E, K, O)))]


def test_memories_are_reset_at_the_start_of_a_document_and_kept_at_padding():
    places = Places(np.arange(5)[None], documents=np.array([[1, 0, 1, 2, 2], [3, 3, 0, 1, 1]]))
    found = jax.jit(lambda places: log_decays(Context(places), -jnp.ones((2, 5, 1, 1))).reshape(2, 5))(places)
    np.testing.assert_array_equal(found, [[-1, 0, -1, -np.inf, -1], [-1, -1, 0, -np.inf, -1]])


def of_single_tokens(q, k, v, log_decay, beta, before):
    read, after = np.zeros((R, T, G, E, O)), np.zeros((R, G, E, K, O))
    for r, g, e in np.ndindex(R, G, E):
        decay = np.exp(np.float64(log_decay[r, :, g, e]))
        inputs = (q[r, :, g], k[r, :, g], v[r, :, g, e], decay, beta[r, :, g, e])
        read[r, :, g, e], after[r, g, e] = memory_of(*map(np.float64, inputs), before[r, g, e])
    return read, after


KINDS = ("one key, nothing fades", "some tokens forget, reflected")


@pytest.mark.parametrize("kind", KINDS)  # without β a layer below reads
def test_chunks_equal_single_tokens_in_outputs_and_derivatives(kind):
    assert_as_by_hand(fading_memory, of_single_tokens, drawn(kind))


CONFIG = TransformerConfig(d_model=D, n_heads=6, head_dim=2, norm_epsilon=1e-3)  # 6 heads need not divide 7
KEYS = {"n_key_heads": 2, "key_dim": 5, "value_dim": 3, "n_taps": 3}
LAYERS = {"delta": (GatedDelta, gated_delta), "mamba2": (Mamba2, mamba2)}
DOCUMENTS = np.array([[1, 1, 1, 1, 1, 2, 2, 3, 3, 3, 3, 0, 0], [1] * 13], np.int32)  # 0 is padding
each = pytest.mark.parametrize("name", LAYERS)


def made(name):
    layer = LAYERS[name][0](CONFIG, **KEYS)
    return layer, random_params(layer.spec())


def vectors(seed=0):
    return np.random.default_rng(seed).normal(size=(R, T, D)).astype(np.float32)


def context(documents):
    places = jnp.arange(T)[None]
    return Context(Places(places, places, documents))


def expected(name, params, x):
    """Returns the oracle's outputs, each document separately."""
    y = np.zeros(x.shape)
    for row, start, stop in [(0, 0, 5), (0, 5, 7), (0, 7, 11), (1, 0, 13)]:
        y[row, start:stop] = LAYERS[name][1](CONFIG, params, x[row, start:stop])
    return y


@each
def test_each_document_is_read_by_the_recurrence_of_the_paper_and_its_gradient_is_that_of_the_recurrence(name):
    layer, params = made(name)
    assert params["value"].shape == (D, 2, 3, 3)  # three heads for each of two keys
    real = DOCUMENTS[..., None] > 0
    read = lambda params, x: jnp.where(real, layer.apply(params, x, context(DOCUMENTS))[0], 0)  # noqa: E731
    assert_as_by_hand(read, functools.partial(expected, name), (params, vectors()))


def test_a_hybrid_stack_decodes_as_it_reads_whole_sequences_also_with_several_hypotheses():
    layers = {"delta": {**KEYS, "n_heads": 2}, "mamba2": {**KEYS, "n_heads": 2}}
    sizes = {"n_layers": 3, "d_model": 6, "d_ff": 7, "n_heads": 3, "max_len": 32, "positions": "none"}
    blocks = "delta, mamba2, attention"
    model = transformer_lm(TransformerLMConfig(**sizes, blocks=blocks, layers=layers), 7)
    assert_cached_equals_full(model, random_params(model.spec), {"inputs": random_tokens((3, 6))}, capacities=[6])
