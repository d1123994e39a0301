"""The seeds' mathematics in NumPy float64, one sequence at a time, written from it and from nothing in fxf.

Params are fxf's trees, converted by `float64`. A config is fxf's, whose keys choose among the seeds: seed 004 (the
default), 000 and 003.
"""

import math

import numpy as np


def float64(tree):
    return {k: float64(v) if isinstance(v, dict) else np.asarray(v, np.float64) for k, v in tree.items()}


def sinusoid(position, axis, d_model):
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(pos / 10000^(2i/d)) (seeds 003 and 004)."""
    two_i = axis if axis % 2 == 0 else axis - 1
    angle = position / 10000 ** (two_i / d_model)
    return math.sin(angle) if axis % 2 == 0 else math.cos(angle)


def sines_then_cosines(position, d_model):
    """sin(pos · 1/10000^(2i/d)) for i = 1 … d/2, then the cosines of the same (seed 000, `posencoding`)."""
    coefficients = [1 / 10000 ** (2 * i / d_model) for i in range(1, d_model // 2 + 1)]
    return [math.sin(position * c) for c in coefficients] + [math.cos(position * c) for c in coefficients]


def position_vector(config, weights, t):
    """Returns what is added at the t-th place, counted from 0. Seeds 000 and 004 count from 1, seed 003 from 0."""
    if config.positions in ("sinusoidal_trained", "learned"):
        return weights["positions"][t]
    if config.positions == "sinusoidal_concatenated":
        return np.array(sines_then_cosines(t + 1, config.d_model))
    return np.array([sinusoid(t, axis, config.d_model) for axis in range(config.d_model)])


def embedding(config, weights, tokens, scaled=False):
    factor = math.sqrt(config.d_model) if scaled else 1.0
    return np.array(
        [factor * weights["table"][token] + position_vector(config, weights, t) for t, token in enumerate(tokens)]
    )


def normalize(config, weights, x):
    rows = []
    for row in x:
        if config.norm_epsilon_in == "deviation":
            divisor = np.std(row) + config.norm_epsilon
        else:
            divisor = np.sqrt(np.var(row) + config.norm_epsilon)
        rows.append((row - np.mean(row)) / divisor * weights["scale"] + weights["bias"])
    return np.array(rows)


def softmax(row):
    e = np.exp(row - np.max(row))
    return e / np.sum(e)


def attention(config, weights, x, z, allowed):
    """Each row t of x attends to the rows s of z for which `allowed(t, s)`."""
    _, n_heads, d_head = weights["query"].shape
    heads = []
    for i in range(n_heads):
        q, k, v = (
            rows @ weights[name][:, i] + (weights[f"{name}_bias"][i] if config.attention_bias == "all" else 0)
            for name, rows in (("query", x), ("key", z), ("value", z))
        )
        head = np.zeros((len(x), d_head))
        for t in range(len(x)):
            seen = [s for s in range(len(z)) if allowed(t, s)]
            scores = np.array([q[t] @ k[s] / np.sqrt(d_head) for s in seen])
            for s, weight in zip(seen, softmax(scores), strict=True):
                head[t] += weight * v[s]
        heads.append(head)
    concatenated = np.concatenate(heads, axis=1)
    w_o = np.concatenate(list(weights["output"]), axis=0)
    return concatenated @ w_o + (0 if config.attention_bias == "none" else weights["output_bias"])


def to_earlier(t, s):
    return s <= t


def causal_attention(config, weights, x):
    return attention(config, weights, x, x, to_earlier)


def gelu(x):
    """x Φ(x), Φ the distribution function of the standard normal distribution."""
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def feed_forward(config, weights, x):
    hidden = x @ weights["up"] + weights["up_bias"]
    hidden = gelu(hidden) if config.activation == "gelu" else np.maximum(0, hidden)
    return hidden @ weights["down"] + weights["down_bias"]


def block(config, weights, x, allowed=to_earlier, source=None, source_allowed=None):
    """A block of one of three forms; with `source`, it attends to that sequence after its own."""

    def norm(name, x):
        return normalize(config, weights[f"{name}_norm"], x)

    if config.block == "post_norm":
        x = norm("attention", x + attention(config, weights["attention"], x, x, allowed))
        if source is not None:
            crossed = attention(config, weights["cross_attention"], x, source, source_allowed)
            x = norm("cross_attention", x + crossed)
        return norm("feed_forward", x + feed_forward(config, weights["feed_forward"], x))

    normalized = norm("attention", x)
    middle = x + attention(config, weights["attention"], normalized, normalized, allowed)
    if source is not None:
        queries = middle if config.cross_norm == "source" else norm("cross_attention", middle)
        source = norm("cross_attention", source) if config.cross_norm == "source" else source
        middle = middle + attention(config, weights["cross_attention"], queries, source, source_allowed)
    changed = feed_forward(config, weights["feed_forward"], norm("feed_forward", middle))
    return x + changed if config.block == "idea" else middle + changed


def final_layer(weights, x):
    return x @ weights["kernel"] + weights["bias"]


def block_weights(stacked, i):
    return {k: block_weights(v, i) if isinstance(v, dict) else v[i] for k, v in stacked.items()}


def transformer_lm(config, weights, tokens):
    """Tokens as they enter the model to logits [n, vocab_size]."""
    x = embedding(config, weights["embedding"], tokens)
    for i in range(config.n_layers):
        x = block(config, block_weights(weights["blocks"], i), x)
    return final_layer(weights["final"], normalize(config, weights["norm"], x) if config.final_norm else x)


def log_probabilities(config, weights, sequence):
    """y_k, the log-probability of x_k after x_1 … x_{k-1}: token 0 in front, the last position dropped."""
    logits = transformer_lm(config, weights, [0, *sequence])[: len(sequence)]
    return np.array([np.log(softmax(row)[token]) for row, token in zip(logits, sequence, strict=True)])


def loss(config, weights, sequences, omega):
    """-Σ ω y / Σ ω over the whole batch."""
    total = sum(
        w * y
        for row, ws in zip(sequences, omega, strict=True)
        for w, y in zip(ws, log_probabilities(config, weights, row), strict=True)
    )
    return -total / np.sum(omega)


def mean_over_rows(config, weights, sequences, omega):
    """What the loss is not: the mean over rows of each row's own weighted mean."""
    rows = [
        -np.sum(ws * log_probabilities(config, weights, row)) / np.sum(ws)
        for row, ws in zip(sequences, omega, strict=True)
    ]
    return np.mean(rows)


def smoothed_cross_entropy(logits, targets, omega, smoothing):
    """-Σ ω Σ_v q_v log p_v with q = (1 - ε) [v = target] + ε / V (Szegedy et al. 2016)."""
    total = 0.0
    for row, target, w in zip(logits, targets, omega, strict=True):
        wanted = np.full(len(row), smoothing / len(row))
        wanted[target] += 1 - smoothing
        total -= w * np.sum(wanted * np.log(softmax(row)))
    return total
