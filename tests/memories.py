"""Memories that fade, one token after the other in float64, by the recurrences of their papers."""

import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def softplus(x):
    return np.log1p(np.exp(x))


def memory_of(q, k, v, decay, beta, before):
    """Returns what tokens read of a head's memory, and it after them: q, k [T, K], v [T, O], decay, beta [T]."""
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


def over_rms(x, epsilon):
    return x / np.sqrt(np.mean(np.square(x), -1, keepdims=True) + epsilon)


def gated_delta(weights, x, epsilon):
    """Gated DeltaNet of one document [T, D] (Yang et al. 2024, equation 10)."""
    q, k, v = (heads_of(weights, name, x) for name in ("query", "key", "value"))
    _, n_groups, n_each, _ = v.shape
    q, k = (h / np.sqrt(np.square(h).sum(-1, keepdims=True) + 1e-6) for h in (q, k))
    y = np.zeros(x.shape)
    for g in range(n_groups):
        for e in range(n_each):
            step = softplus(x @ weights["step"][:, g, e] + weights["step_bias"][g, e])
            decay, beta = np.exp(-np.exp(weights["log_rate"][g, e]) * step), sigmoid(x @ weights["beta"][:, g, e])
            nothing = np.zeros((q.shape[-1], v.shape[-1]))
            read, _ = memory_of(q[:, g] / np.sqrt(q.shape[-1]), k[:, g], v[:, g, e], decay, beta, nothing)
            gate = silu(x @ weights["gate"][:, g, e])
            y += (over_rms(read, epsilon) * weights["scale"] * gate) @ weights["output"][g, e]
    return y


def mamba2(weights, x, epsilon):
    """Mamba-2 of one document [T, D] (Dao and Gu 2024, equation 2 with a scalar A, and section 7)."""
    q, k, v = (heads_of(weights, name, x) for name in ("query", "key", "value"))
    gated = np.zeros(v.shape)
    for g in range(v.shape[1]):
        for e in range(v.shape[2]):
            step = softplus(x @ weights["step"][:, g, e] + weights["step_bias"][g, e])
            decay, nothing = np.exp(-np.exp(weights["log_rate"][g, e]) * step), np.zeros((k.shape[-1], v.shape[-1]))
            read, _ = memory_of(q[:, g], k[:, g], step[:, None] * v[:, g, e], decay, None, nothing)
            gate = silu(x @ weights["gate"][:, g, e])
            gated[:, g, e] = (read + weights["skip"][g, e] * v[:, g, e]) * gate
    normalized = over_rms(gated.reshape(*gated.shape[:2], -1), epsilon).reshape(gated.shape) * weights["scale"]
    return normalized.reshape(len(x), -1) @ weights["output"].reshape(-1, x.shape[-1])
