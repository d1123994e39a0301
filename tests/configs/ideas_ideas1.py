"""Kinds of attention of configs/ideas in NumPy float64, query by query, from the formulas of their papers.

An oracle gets the model's config, the blocks' weights, and one sequence's vectors [T, D] before the blocks; it returns
those after the blocks.
"""

import math

import numpy as np
from scipy.special import expit as sigma

import oracle
from helpers import table


def blocks(attention):
    """Returns the oracle for pre-norm blocks of this attention and a feed-forward layer."""

    def apply(config, params, x_TD):
        x_TD, carry = np.array(x_TD, np.float64), {}
        for number in range(config.n_layers):
            weights = params[str(number)]
            normalized = oracle.normalize(config, weights["attention_norm"], x_TD)
            heads_THK = attention(config, weights["attention"], normalized, number, carry)
            of_attention = weights["attention"]
            x_TD = x_TD + np.einsum("thk,hkd->td", heads_THK, of_attention["output"]) + of_attention["output_bias"]
            normalized = oracle.normalize(config, weights["feed_forward_norm"], x_TD)
            x_TD = x_TD + oracle.feed_forward(config, weights["feed_forward"], normalized)
        return x_TD

    return apply


def by_query(read, weighs=True):
    """Returns the attention in which `read(config, weights, h, t, scores, given)` weighs keys 0 … t in head h.

    Without `weighs`, `read` returns the output instead of weights.
    """

    def attention(config, weights, x_TD, number, carry):
        q_THK, k_THK, v_THK = projected(weights, x_TD)
        heads_THK = np.zeros_like(v_THK)
        for h, t in np.ndindex(config.n_heads, len(x_TD)):
            q, k, v = q_THK[t, h], k_THK[: t + 1, h], v_THK[: t + 1, h]
            given = {"q": q, "k": k, "v": v, "x_TD": x_TD, "number": number, "carry": carry}
            found = read(config, weights, h, t, k @ q / math.sqrt(len(q)), given)
            heads_THK[t, h] = found @ v if weighs else found
        return heads_THK

    return attention


plain = by_query(lambda config, weights, h, t, scores, given: oracle.softmax(scores))


def projected(weights, x_TD):
    return (np.einsum("td,dhk->thk", x_TD, weights[name]) for name in ("query", "key", "value"))


def own_keys(config):
    return config.layers.get("attention", {})


def t5_bias(config, weights, h, t, scores, given):
    """Distances below n / 2 have a bucket each; others share them by logarithm, up to max_distance (Raffel et al.)."""
    n, furthest = own_keys(config)["buckets"], own_keys(config)["max_distance"]
    for j in range(t + 1):
        distance, exact = t - j, n // 2
        if distance < exact:
            bucket = distance
        else:
            bucket = exact + math.floor(math.log(distance / exact) / math.log(furthest / exact) * (n - exact))
        scores[j] += weights["distances"][h, min(bucket, n - 1)]
    return oracle.softmax(scores)


def fire(config, weights, h, t, scores, given):
    """b(t, j) = f(ψ(t - j) / ψ(max(L, t))), ψ(x) = log(c x + 1) (Li et al.)."""
    c, least = abs(weights["slope"][0]), abs(weights["threshold"][0])
    for j in range(t + 1):
        share = math.log(c * (t - j) + 1) / math.log(c * max(t, least) + 1)
        hidden = np.maximum(0, share * weights["hidden"] + weights["hidden_bias"])
        scores[j] += hidden @ weights["distances"][:, h] + weights["distances_bias"][h]
    return oracle.softmax(scores)


def cope(config, weights, h, t, scores, given):
    """p(t, j) = Σ_{j ≤ l ≤ t} σ(score l); the embedding of p lies between those of ⌊p⌋ and ⌈p⌉ (Golovneva et al.)."""
    last, gates = own_keys(config)["n_positions"] - 1, sigma(scores)
    added = np.zeros(t + 1)
    for j in range(t + 1):
        p = min(gates[j:].sum(), last)
        below, above = weights["counts"][math.floor(p)], weights["counts"][math.ceil(p)]
        embedding = (p - math.floor(p)) * above + (1 - (p - math.floor(p))) * below
        added[j] = given["q"] @ embedding
    return oracle.softmax(scores + added)


def xpos(config, weights, h, t, scores, given):
    """Pair i of queries is ζ_i^(n / unit) e^(i n θ_i) times itself as a complex number; keys have ζ^-n (Sun et al.)."""
    width, gamma, unit = len(given["q"]), 0.4, own_keys(config)["unit"]
    i = np.arange(width // 2)
    zeta, theta = (2 * i / width + gamma) / (1 + gamma), 10000.0 ** (-2 * i / width)

    def turned(vector, position, sign):
        return (vector[0::2] + 1j * vector[1::2]) * np.exp(1j * position * theta) * zeta ** (sign * position / unit)

    products = [(turned(given["q"], t, 1) * turned(k, j, -1).conj()).real.sum() for j, k in enumerate(given["k"])]
    return oracle.softmax(np.array(products) / math.sqrt(width))


def differential(config, weights, h, t, scores, given):
    """(softmax(Q1 K1) - λ softmax(Q2 K2)) V, normalized by head, times 1 - λ_init (Ye et al.)."""
    q, k, half = given["q"], given["k"], len(given["q"]) // 2
    start = 0.8 - 0.6 * math.exp(-0.3 * given["number"])
    first, second = (math.exp(weights[f"a{i}"] @ weights[f"b{i}"]) for i in (1, 2))
    signal, noise = (oracle.softmax(k[:, part] @ q[part] / math.sqrt(half)) for part in (np.s_[:half], np.s_[half:]))
    read = (signal - (first - second + start) * noise) @ given["v"]
    return read / math.sqrt((read**2).mean() + 1e-5) * weights["heads_scale"] * (1 - start)


def talking_heads(config, weights, x_TD, number, carry):
    """J = Q K, weights = softmax(J P_l) P_w, over the heads (Shazeer et al.)."""
    q_THK, k_THK, v_THK = projected(weights, x_TD)
    heads_THK = np.zeros_like(v_THK)
    for t in range(len(x_TD)):
        products_HC = np.einsum("hk,chk->hc", q_THK[t], k_THK[: t + 1]) / math.sqrt(q_THK.shape[-1])
        heads = range(len(products_HC))
        mixed = [sum(products_HC[g] * weights["mix_scores"][g, h] for g in heads) for h in heads]
        normalized = [oracle.softmax(row) for row in mixed]
        for h in heads:
            heads_THK[t, h] = sum(normalized[g] * weights["mix_weights"][g, h] for g in heads) @ v_THK[: t + 1, h]
    return heads_THK


def sink_logits(config, weights, h, t, scores, given):
    """e^z / (e^sink + Σ e^z) (Miller, where the sink is 0; gpt-oss, where it is trained)."""
    sink = weights["sink"][h] if own_keys(config).get("learned", True) else 0
    return np.exp(scores) / (math.exp(sink) + np.exp(scores).sum())


def gated_attention(config, weights, x_TD, number, carry):
    """Y ⊙ σ(X W), by head, where Y is what plain attention reads (Qiu et al.)."""
    heads_THK = plain(config, weights, x_TD, number, carry)
    return heads_THK * sigma(np.einsum("td,dhk->thk", x_TD, weights["gate"]))


def value_residual(config, weights, h, t, scores, given):
    """softmax(Q K) (a V_1 + b V_n) (Zhou et al.); the first block has its own values alone."""
    first = given["carry"].setdefault((h, t), given["v"])
    values = given["v"] if given["number"] == 0 else weights["first"][0] * first + weights["own"][0] * given["v"]
    return oracle.softmax(scores) @ values


def forgetting(config, weights, h, t, scores, given):
    """d(t, j) = Σ_{j < l ≤ t} log f_l is added to the score, f = σ(w x + b) (Lin et al.)."""
    gates = sigma(given["x_TD"] @ weights["forget"][:, h, 0] + weights["forget_bias"][h, 0])
    for j in range(t + 1):
        scores[j] += math.log(np.prod(gates[j + 1 : t + 1]))
    return oracle.softmax(scores)


def sigmoid(config, weights, h, t, scores, given):
    """σ(z - log n) of n keys (Ramapuram et al.)."""
    n = own_keys(config).get("n_keys", 0) or t + 1
    return sigma(scores - math.log(n))


def stick_breaking(config, weights, h, t, scores, given):
    """β_j Π_{j < l < t} (1 - β_l) for j < t, where β = σ(z) (Tan et al.)."""
    end = t + 1 if own_keys(config).get("own", False) else t
    shares, read = sigma(scores), np.zeros(t + 1)
    for j in range(end):
        read[j] = shares[j] * np.prod(1 - shares[j + 1 : end])
    return read


BY_QUERY = (t5_bias, fire, cope, xpos, sink_logits, forgetting, sigmoid, stick_breaking)
ORACLES = {f.__name__: blocks(by_query(f)) for f in BY_QUERY}
ORACLES |= {f.__name__: blocks(by_query(f, weighs=False)) for f in (differential, value_residual)}
ORACLES |= {f.__name__: blocks(f) for f in (talking_heads, gated_attention)}
VARIANTS = [name for _, name in table("keys of tiny ideas") if name.partition(":")[0] in ORACLES]
ORACLES |= {name: ORACLES[name.partition(":")[0]] for name in VARIANTS}
