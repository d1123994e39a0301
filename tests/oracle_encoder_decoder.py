"""Seeds 000 and 003 in NumPy float64, one sentence at a time, written from their mathematics and from nothing in fxf.

Params are fxf's trees, converted by `float64`. There is no padding: a source is what its sentence holds.
"""

import math

import numpy as np

from oracle import sinusoid, softmax


def normalize(weights, x, epsilon):
    """Each row less its mean, divided by √(variance + epsilon); scaled and shifted."""
    rows = []
    for row in x:
        variance = np.mean((row - np.mean(row)) ** 2)
        rows.append((row - np.mean(row)) / math.sqrt(variance + epsilon) * weights["scale"] + weights["bias"])
    return np.array(rows)


def attention(weights, x, z, causal=False):
    """From each vector of x to those of z: q ← x W_q + b_q, k ← z W_k + b_k, v ← z W_v + b_v; Σ softmax(q k / √d) v."""
    _, n_heads, d_head = weights["query"].shape

    def projected(name, vector, head):
        bias = weights[f"{name}_bias"][head] if f"{name}_bias" in weights else 0
        return vector @ weights[name][:, head] + bias

    rows = []
    for t in range(len(x)):
        heads = []
        for h in range(n_heads):
            seen = z[: t + 1] if causal else z
            q = projected("query", x[t], h)
            scores = np.array([q @ projected("key", vector, h) for vector in seen]) / math.sqrt(d_head)
            values = [projected("value", vector, h) for vector in seen]
            heads.append(sum(weight * value for weight, value in zip(softmax(scores), values, strict=True)))
        bias = weights.get("output_bias", 0)
        rows.append(np.concatenate(heads) @ np.concatenate(list(weights["output"])) + bias)
    return np.array(rows)


def relu(x):
    return np.maximum(0, x)


def gelu(x):
    """x times the probability that a standard normal variable is below x."""
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def feed_forward(weights, x, activation):
    return activation(x @ weights["up"] + weights["up_bias"]) @ weights["down"] + weights["down_bias"]


def layers(stack):
    blocks = stack["blocks"]
    return [blocks[str(i)] for i in range(len(blocks))]


def scaled_embedding(weights, tokens):
    """Rows times √d, and the sinusoids of positions 0, 1, … (seed 003)."""
    d_model = weights["table"].shape[1]
    return np.array(
        [
            weights["table"][token] * math.sqrt(d_model) + [sinusoid(position, i, d_model) for i in range(d_model)]
            for position, token in enumerate(tokens)
        ]
    )


def learned_embedding(weights, tokens):
    """Rows, and a row for each position (seed 000)."""
    return np.array([weights["table"][token] + weights["positions"][p] for p, token in enumerate(tokens)])


def wolfram(weights, source, inputs):
    """Seed 000. What cross-attention normalizes is the encoder's output, not its queries; no norm ends a stack."""
    epsilon = 1e-4
    z = learned_embedding(weights["source_embedding"], source)
    for w in layers(weights["encoder"]):
        seen = normalize(w["attention_norm"], z, epsilon)
        z = z + attention(w["attention"], seen, seen)
        z = z + feed_forward(w["feed_forward"], normalize(w["feed_forward_norm"], z, epsilon), gelu)
    x = learned_embedding(weights["target_embedding"], inputs)
    for w in layers(weights["decoder"]):
        seen = normalize(w["attention_norm"], x, epsilon)
        x = x + attention(w["attention"], seen, seen, causal=True)
        x = x + attention(w["cross_attention"], x, normalize(w["cross_attention_norm"], z, epsilon))
        x = x + feed_forward(w["feed_forward"], normalize(w["feed_forward_norm"], x, epsilon), gelu)
    return x @ weights["final"]["kernel"] + weights["final"]["bias"]


def annotated(weights, source, inputs):
    """Seed 003: a norm after each sum, one table for source, target and output."""
    epsilon = 1e-5
    z = scaled_embedding(weights["embedding"], source)
    for w in layers(weights["encoder"]):
        z = normalize(w["attention_norm"], z + attention(w["attention"], z, z), epsilon)
        z = normalize(w["feed_forward_norm"], z + feed_forward(w["feed_forward"], z, relu), epsilon)
    x = scaled_embedding(weights["embedding"], inputs)
    for w in layers(weights["decoder"]):
        x = normalize(w["attention_norm"], x + attention(w["attention"], x, x, causal=True), epsilon)
        x = normalize(w["cross_attention_norm"], x + attention(w["cross_attention"], x, z), epsilon)
        x = normalize(w["feed_forward_norm"], x + feed_forward(w["feed_forward"], x, relu), epsilon)
    return x @ weights["embedding"]["table"].T


def tiny(weights, source, inputs):
    """Transformer-Tiny: seed 003's embedding, with a norm before each sublayer and none at the end of a stack."""
    epsilon = 1e-5
    z = scaled_embedding(weights["embedding"], source)
    for w in layers(weights["encoder"]):
        seen = normalize(w["attention_norm"], z, epsilon)
        z = z + attention(w["attention"], seen, seen)
        z = z + feed_forward(w["feed_forward"], normalize(w["feed_forward_norm"], z, epsilon), relu)
    x = scaled_embedding(weights["embedding"], inputs)
    for w in layers(weights["decoder"]):
        seen = normalize(w["attention_norm"], x, epsilon)
        x = x + attention(w["attention"], seen, seen, causal=True)
        x = x + attention(w["cross_attention"], normalize(w["cross_attention_norm"], x, epsilon), z)
        x = x + feed_forward(w["feed_forward"], normalize(w["feed_forward_norm"], x, epsilon), relu)
    return x @ weights["embedding"]["table"].T
