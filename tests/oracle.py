"""The seeds' mathematics in NumPy float64, one sequence at a time, written from the formulas and not from fxf.

Params are fxf's trees, converted by `float64`. A config is fxf's; its keys choose among the seeds: seed 004 (the
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


def position_vector(config, weights, t):
    """Returns the encoding of token t, counted from 0. Positions start at 1 in seeds 000 and 004, at 0 in seed 003."""
    kind, d = config.positions, config.d_model
    if kind in ("none", "rotary", "alibi", "alibi_geometric"):
        return np.zeros(d)
    if kind in ("sinusoidal_trained", "learned"):
        return weights["positions"][t]
    if kind == "sinusoidal_concatenated":  # sin(pos / 10000^(2i/d)) for i = 1 … d/2, then the cosines (seed 000)
        angles = [(t + 1) / 10000 ** (2 * i / d) for i in range(1, d // 2 + 1)]
        return np.concatenate([np.sin(angles), np.cos(angles)])
    axes = [*range(0, d, 2), *range(1, d, 2)] if kind == "sinusoidal_halves" else range(d)
    return np.array([sinusoid(t, axis, d) for axis in axes])


def embedding(config, weights, tokens, scaled=False, segments=None):
    scaled = scaled or getattr(config, "scaled_embeddings", False)
    factor = math.sqrt(config.d_model) if scaled else 1.0
    positions = [position_vector(config, weights, place(config, t)) for t in range(len(tokens))]
    x = factor * weights["table"][np.asarray(tokens)] + np.array(positions)
    if "segments" in weights:
        x = x + np.array([weights["segments"][segment] for segment in segments])
    return normalize(config, weights["norm"], x) if config.embedding_norm else x


def place(config, t):
    """The position of the t-th token: with a position_range, each is a gap after the last."""
    return t * config.position_gap


def normalize(config, weights, x):
    rows = []
    for row in x:
        if config.norm == "rms":
            variance = np.mean(row**2)
        else:
            row, variance = row - np.mean(row), np.var(row)
        if config.norm_epsilon_in == "deviation":
            divisor = np.sqrt(variance) + config.norm_epsilon
        else:
            divisor = np.sqrt(variance + config.norm_epsilon)
        factor = weights["scale"] + config.zero_centered_scale
        rows.append(row / divisor * factor + (0 if config.norm == "rms" else weights["bias"]))
    return np.array(rows)


def softmax(row):
    e = np.exp(row - np.max(row))
    return e / np.sum(e)


def is_global(config, number):
    """Whether the block, counted from 0, sees beyond the window: every n-th does, n = global_every."""
    return config.global_every > 0 and (number + 1) % config.global_every == 0


def wavelength(config, i, width, number=0):
    """2π θ^(2i/K) tokens, scaled by the rule of Chen et al. (2023) or, with a trained length, that of Llama 3."""
    if config.local_rope_theta and not is_global(config, number):
        return 2 * math.pi * config.local_rope_theta ** (2 * i / width)
    plain, trained = 2 * math.pi * config.rope_theta ** (2 * i / width), config.rope_trained_len
    if not trained or plain > trained:
        return plain * config.rope_factor
    if plain < trained / 4:
        return plain
    smooth = (trained / plain - 1) / (4 - 1)
    return 1 / ((1 - smooth) / (plain * config.rope_factor) + smooth / plain)


def rotate(config, vector, position, number=0):
    """Turns the pairs (x_0, x_1), (x_2, x_3), … by position · 2π / wavelength (seed 002; Su et al. 2021)."""
    turned = np.zeros_like(vector)
    for i in range(len(vector) // 2):
        angle = position * 2 * math.pi / wavelength(config, i, len(vector), number)
        matrix = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        turned[2 * i : 2 * i + 2] = matrix @ vector[2 * i : 2 * i + 2]
    return turned


def alibi_slope(config, head):
    """1 / A^(h / H), A = 2^8, h from 1 (seed 002); or, for other head counts than 2^n, the rule of Press et al."""
    lower = 2 ** (config.n_heads.bit_length() - 1)
    if config.positions == "alibi" or lower == config.n_heads:
        return 1 / 256 ** ((head + 1) / config.n_heads)
    return 1 / 256 ** ((head + 1) / lower if head < lower else (2 * (head - lower) + 1) / (2 * lower))


def feature_map(config, x):
    if config.feature_map == "none":
        return x
    maps = {"elu": np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))), "relu": np.maximum(x, 0), "exp": np.exp(x)}
    return maps[config.feature_map] + 1e-6


def weigh(config, head, q, keys, distances):
    """The weights of the visible keys, given their distances from the query, or None in cross-attention."""
    if config.attention == "linear":
        unnormalized = np.array([feature_map(config, q) @ feature_map(config, k) for k in keys])
        return unnormalized / unnormalized.sum()
    scores = np.array([q @ k * (config.query_scale or 1 / np.sqrt(len(q))) for k in keys])
    if cap := config.attention_softcap:
        scores = cap * np.tanh(scores / cap)
    decay = np.ones(len(keys))
    if config.positions.startswith("alibi") and distances is not None:
        decay = np.exp(-alibi_slope(config, head) * np.array(distances))
    unnormalized = (scores**2 / (1 + scores**2) if config.attention == "expressive" else np.exp(scores)) * decay
    return unnormalized / unnormalized.sum()


def unit_mean_square(config, x):
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + config.norm_epsilon)


def attention(config, weights, x, z, allowed, crossed=False, number=0):
    """Each row t of x attends to the rows s of z with `allowed(t, s)`, in its own sequence or another.

    `number` is that of the block, counted from 0.
    """
    _, n_heads, d_head = weights["query"].shape
    shared_by = n_heads // weights["key"].shape[1]
    heads = []
    for i in range(n_heads):
        q, k, v = (
            rows @ weights[name][:, j] + (weights[f"{name}_bias"][j] if config.attention_bias in ("all", "qkv") else 0)
            for name, rows, j in (("query", x, i), ("key", z, i // shared_by), ("value", z, i // shared_by))
        )
        if config.qk_norm:
            q, k = (
                unit_mean_square(config, rows) * (weights[f"{name}_scale"] + config.zero_centered_scale)
                for name, rows in (("query", q), ("key", k))
            )
        if config.positions == "rotary" and not crossed:
            q, k = (
                np.array([rotate(config, row, place(config, t), number) for t, row in enumerate(rows)])
                for rows in (q, k)
            )
        head = np.zeros((len(x), d_head))
        for t in range(len(x)):
            seen = [s for s in range(len(z)) if allowed(t, s)]
            if config.window and not crossed and not is_global(config, number):
                seen = [s for s in seen if abs(t - s) < config.window]
            distances = None if crossed else [abs(place(config, t) - place(config, s)) for s in seen]
            for s, weight in zip(seen, weigh(config, i, q[t], k[seen], distances), strict=True):
                head[t] += weight * v[s]
        heads.append(head)
    concatenated = np.concatenate(heads, axis=1)
    w_o = np.concatenate(list(weights["output"]), axis=0)
    return concatenated @ w_o + (weights["output_bias"] if config.attention_bias in ("all", "output") else 0)


def to_earlier(t, s):
    return s <= t


def to_all(t, s):
    return True


def gelu(x):
    """x Φ(x), Φ the distribution function of the standard normal distribution."""
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def feed_forward(config, weights, x):
    def mapped(name, x):
        return x @ weights[name] + (weights[f"{name}_bias"] if config.feed_forward_bias else 0)

    up = mapped("up", x)
    if config.gated and config.activation == "silu_clamped":
        up = np.clip(up, -7, 7) + 1
    hidden = activation(config, mapped("gate", x)) * up if config.gated else activation(config, up)
    return mapped("down", hidden)


def activation(config, x):
    activations = {
        "relu": lambda x: np.maximum(0, x),
        "gelu": gelu,
        "gelu_tanh": lambda x: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
        "silu": lambda x: x / (1 + np.exp(-x)),
        "silu_clamped": lambda x: np.minimum(x, 7) / (1 + np.exp(-1.702 * np.minimum(x, 7))),
    }
    return activations[config.activation](x)


def block(config, weights, x, allowed=to_earlier, source=None, source_allowed=None, number=0, factor=1):
    """A block of one of five forms; with `source`, it attends to that sequence after its own one.

    What a layer adds to the stream is multiplied by `factor`.
    """
    form, first = config.block, x

    def norm(name, x):
        return normalize(config, weights[f"{name}_norm"], x)

    layers = {"attention": lambda x: attention(config, weights["attention"], x, x, allowed, number=number)}
    if source is not None:
        source = norm("cross_attention", source) if config.cross_norm == "source" else source
        crossed = weights["cross_attention"]
        layers["cross_attention"] = lambda x: attention(config, crossed, x, source, source_allowed, True)
    layers["feed_forward"] = lambda x: feed_forward(config, weights["feed_forward"], x)

    for name, layer in layers.items():
        if form == "post_norm":
            x = norm(name, x + factor * layer(x))
        elif form == "output_norm":
            x = x + factor * norm(name, layer(x))
        else:
            is_normalized = name != "cross_attention" or config.cross_norm == "queries"
            change = layer(norm(name, x) if is_normalized else x)
            change = norm(f"{name}_post", change) if form == "sandwich" else change
            x = (first if form == "idea" and name == "feed_forward" else x) + factor * change
    return x


def final_layer(weights, x):
    return x @ weights["kernel"] + weights.get("bias", 0)


def transformer_lm(config, weights, tokens, allowed=to_earlier, segments=None):
    """Maps input tokens to logits [n, vocab_size]."""
    x = embedding(config, weights["embedding"], tokens, segments=segments)
    for i in range(config.n_layers):
        x = block(config, weights["blocks"][str(i)], x, allowed, number=i)
    x = normalize(config, weights["norm"], x) if config.final_norm else x
    if config.head == "transform":
        dense = weights["transform"]
        x = normalize(config, dense["norm"], activation(config, x @ dense["kernel"] + dense["bias"]))
    if config.tied_embeddings:
        logits = x @ weights["embedding"]["table"].T + weights["embedding"].get("logits_bias", 0)
    else:
        logits = final_layer(weights["final"], x)
    cap = config.logit_softcap
    return cap * np.tanh(logits / cap) if cap else logits


def encoder_decoder(config, weights, source, inputs):
    """Maps source tokens, all visible, and the decoder's input tokens to logits [n, vocab_size]."""

    def stack(side, name, tokens, **crossed):
        table = weights["embedding" if config.embeddings == "shared" else f"{side}_embedding"]
        x = embedding(config, table, tokens, scaled=config.embeddings == "shared")
        for i in range(config.n_layers):
            x = block(config, weights[name]["blocks"][str(i)], x, number=i, **crossed)
        return normalize(config, weights[name]["norm"], x) if config.final_norm else x

    z = stack("source", "encoder", source, allowed=to_all)
    x = stack("target", "decoder", inputs, source=z, source_allowed=to_all)
    return x @ weights["embedding"]["table"].T if config.embeddings == "shared" else final_layer(weights["final"], x)


def smoothed_cross_entropy(logits, targets, omega, smoothing):
    """-Σ ω Σ_v q_v log p_v with q = (1 - ε) [v = target] + ε / V (Szegedy et al. 2016)."""
    total = 0.0
    for row, target, w in zip(logits, targets, omega, strict=True):
        wanted = np.full(len(row), smoothing / len(row))
        wanted[target] += 1 - smoothing
        total -= w * np.sum(wanted * np.log(softmax(row)))
    return total


def loss(config, weights, sequences, omega):
    """-Σ ω y / Σ ω over the whole batch, y_k the log-probability of x_k after token 0 and x_1 … x_{k-1}."""
    logits = [transformer_lm(config, weights, [0, *sequence])[:-1] for sequence in sequences]
    return sum(smoothed_cross_entropy(*row, 0) for row in zip(logits, sequences, omega, strict=True)) / np.sum(omega)
