"""Seed 004 in NumPy float64, one sequence at a time, written from its mathematics and from nothing in fxf.

Params are fxf's trees, converted by `float64`.
"""

import numpy as np


def float64(tree):
    return {k: float64(v) if isinstance(v, dict) else np.asarray(v, np.float64) for k, v in tree.items()}


def embedding(weights, tokens):
    return np.array([weights["table"][token] for token in tokens])


def sinusoid(position, axis, d_model):
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(pos / 10000^(2i/d))."""
    two_i = axis if axis % 2 == 0 else axis - 1
    angle = position / 10000 ** (two_i / d_model)
    return np.sin(angle) if axis % 2 == 0 else np.cos(angle)


def positional_encoding(weights, x):
    return x + weights["table"][: len(x)]


def normalize(weights, x):
    rows = []
    for row in x:
        standardized = (row - np.mean(row)) / (np.std(row) + 1e-6)
        rows.append(standardized * weights["scale"] + weights["bias"])
    return np.array(rows)


def softmax(row):
    e = np.exp(row - np.max(row))
    return e / np.sum(e)


def causal_attention(weights, x):
    n = len(x)
    _, n_heads, d_head = weights["query"].shape
    heads = []
    for i in range(n_heads):
        q, k, v = (x @ weights[name][:, i] for name in ("query", "key", "value"))
        head = np.zeros((n, d_head))
        for t in range(n):
            scores = np.array([q[t] @ k[s] / np.sqrt(d_head) for s in range(t + 1)])
            for s, weight in enumerate(softmax(scores)):
                head[t] += weight * v[s]
        heads.append(head)
    concatenated = np.concatenate(heads, axis=1)
    w_o = np.concatenate(list(weights["output"]), axis=0)
    return concatenated @ w_o + weights["output_bias"]


def feed_forward(weights, x):
    hidden = np.maximum(0, normalize(weights["norm"], x) @ weights["up"] + weights["up_bias"])
    return hidden @ weights["down"] + weights["down_bias"]


def decoder_block(weights, x, form):
    attended = causal_attention(weights["attention"], normalize(weights["norm"], x))
    changed = feed_forward(weights["feed_forward"], x + attended)
    return x + attended + changed if form == "definition" else x + changed


def final_layer(weights, x):
    return x @ weights["kernel"] + weights["bias"]


def block_weights(stacked, i):
    return {k: block_weights(v, i) if isinstance(v, dict) else v[i] for k, v in stacked.items()}


def transformer_lm(weights, tokens, form="definition"):
    """Tokens as they enter the model to logits [n, vocab_size]."""
    x = positional_encoding(weights["positions"], embedding(weights["embedding"], tokens))
    for i in range(len(weights["blocks"]["norm"]["scale"])):
        x = decoder_block(block_weights(weights["blocks"], i), x, form)
    return final_layer(weights["final"], normalize(weights["norm"], x))


def log_probabilities(weights, sequence, form="definition"):
    """y_k, the log-probability of x_k after x_1 … x_{k-1}: token 0 in front, the last position dropped."""
    logits = transformer_lm(weights, [0, *sequence], form)[: len(sequence)]
    return np.array([np.log(softmax(row)[token]) for row, token in zip(logits, sequence, strict=True)])


def loss(weights, sequences, omega, form="definition"):
    """-Σ ω y / Σ ω over the whole batch."""
    total = sum(
        w * y
        for row, ws in zip(sequences, omega, strict=True)
        for w, y in zip(ws, log_probabilities(weights, row, form), strict=True)
    )
    return -total / np.sum(omega)


def mean_over_rows(weights, sequences, omega):
    """What the loss is not: the mean over rows of each row's own weighted mean."""
    rows = [
        -np.sum(ws * log_probabilities(weights, row)) / np.sum(ws) for row, ws in zip(sequences, omega, strict=True)
    ]
    return np.mean(rows)
