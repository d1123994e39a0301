"""Blocks, layers and objectives of configs/ideas in NumPy float64, token by token, from the formulas of their papers.

ORACLES and KEYS are as in test_ideas.py. OBJECTIVES has, for what acts on a whole model, functions of the model's config,
all weights, and the inputs, targets and weights [T] of a sequence, that return what training minimizes; and whether that
is with a random key.
"""

import dataclasses
import math

import numpy as np

import oracle

KEYS = {
    "hyper_connections": {"layers": {"HyperConnections": {"streams": 3}}},
    "layer_scale": {"layers": {"LayerScale": {"first_scale": 0.5}}},
    "looped": {"blocks": "3@(attention+feed_forward)"},
    "mixture_of_depths": {"layers": {"Depths": {"agree": 0.3}}},
    "multi_token": {"ahead": 3, "ahead_weight": 0.7},
    "product_keys": {"layers": {"ProductKeys": {"heads": 2, "halves": 5, "best": 3, "half_dim": 2}}},
    "unet": {"n_layers": 5},
    "z_loss": {"z_loss": 0.1},
}


def own_keys(config, name, default):
    return config.layers.get(name, {}).get(*default)


def unit(x, axis=-1):
    return x / np.sqrt((x**2).sum(axis, keepdims=True))


def sublayers(config):
    """Returns the plain layers, as functions of their weights and vectors."""
    return {
        "attention": lambda weights, x_TD: oracle.causal_attention(config, weights, x_TD),
        "feed_forward": lambda weights, x_TD: oracle.feed_forward(config, weights, x_TD),
    }


def pre_norm(config, weights, x_TD, layers=None, joined=lambda name, x, y: x + y):
    """Returns the vectors after a block of layers, each of which reads normalized vectors and is joined to them."""
    for name, layer in (layers or sublayers(config)).items():
        normalized = oracle.normalize(config, weights[f"{name}_norm"], x_TD)
        x_TD = joined(name, x_TD, layer(weights[name], normalized))
    return x_TD


def blocks(block):
    """Returns the oracle of all blocks, each `block(config, weights, x)`."""

    def apply(config, params, x_TD):
        for number in range(config.n_layers):
            x_TD = block(config, params[str(number)], x_TD)
        return x_TD

    return apply


def parallel(config, weights, x_TD):
    """y = x + MLP(LN(x)) + Attention(LN(x)) (section 2 of Chowdhery et al.)."""
    normalized = oracle.normalize(config, weights["norm"], x_TD)
    return x_TD + sum(layer(weights[name], normalized) for name, layer in sublayers(config).items())


def layer_scale(config, weights, x_TD):
    """x' = x + diag(λ) SA(η(x)), and the same for the feed-forward layer (eq. 4 of Touvron et al.)."""
    return pre_norm(config, weights, x_TD, joined=lambda name, x, y: x + y @ np.diag(weights[f"{name}_scale"]))


def squared_relu(config, weights, x_TD):
    """max(x, 0)² between the maps of the feed-forward layer (section 4 of So et al.)."""

    def feed_forward(weights, x_TD):
        hidden = np.maximum(x_TD @ weights["up"] + weights["up_bias"], 0) ** 2
        return hidden @ weights["down"] + weights["down_bias"]

    return pre_norm(config, weights, x_TD, sublayers(config) | {"feed_forward": feed_forward})


def looped(config, weights, x_TD):
    """A block is applied to its own output again and again."""
    for _ in range(3):
        x_TD = pre_norm(config, weights["0"], x_TD)
    return x_TD


def unet(config, params, x_TD):
    """Linear(Concat(h_m, h_s)) goes into each block of the second half; the middle one has no skip (Bao et al.)."""
    first = pre_norm(config, params["0"], x_TD)
    second = pre_norm(config, params["1"], first)
    middle = pre_norm(config, params["2"], second)
    third = pre_norm(config, params["3"]["part"], np.hstack([middle, second]) @ params["3"]["join"])
    return pre_norm(config, params["4"]["part"], np.hstack([third, first]) @ params["4"]["join"])


def hyper_connections(config, params, x_TD):
    """Ĥ = Bᵀ T(Hᵀ A_m) + A_rᵀ H, where A_m, A_r and B are a matrix plus s tanh(N(H) W) (eq. 4 and 10 to 13)."""
    rows_TMD = np.repeat(x_TD[:, None], 3, axis=1)
    for number in range(config.n_layers):
        weights = params[str(number)]
        for name, layer in sublayers(config).items():
            own = weights[f"{name}_streams"]
            read_TD, mixed_TMD, write_TM = np.zeros_like(x_TD), np.zeros_like(rows_TMD), np.zeros(rows_TMD.shape[:2])
            for t, h_MD in enumerate(rows_TMD):
                normalized = oracle.normalize(config, own["norm"], h_MD)
                a_MN = own["mix"] + own["scale"][0] * np.tanh(normalized @ own["mix_by"])
                write_TM[t] = own["write"] + own["scale"][1] * np.tanh(normalized @ own["write_by"])[:, 0]
                read_TD[t], mixed_TMD[t] = a_MN[:, 0] @ h_MD, a_MN[:, 1:].T @ h_MD
            y_TD = layer(weights[name], oracle.normalize(config, weights[f"{name}_norm"], read_TD))
            rows_TMD = mixed_TMD + np.einsum("tm,td->tmd", write_TM, y_TD)
    return rows_TMD.sum(1)


ORACLES = {f.__name__: blocks(f) for f in (parallel, layer_scale, squared_relu, looped)}
ORACLES |= {f.__name__: f for f in (unet, hyper_connections)}
OBJECTIVES = {}
