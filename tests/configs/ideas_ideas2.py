"""Blocks, layers and objectives of configs/ideas in NumPy float64, token by token, from the formulas of their papers.

test_ideas.py documents ORACLES and OBJECTIVES.
"""

import math

import numpy as np

import oracle


def unit(x, axis=-1):
    return x / np.sqrt((x**2).sum(axis, keepdims=True))


def sublayers(config):
    """Returns the plain sublayers as functions of weights and vectors."""
    return {
        "attention": lambda weights, x_TD: oracle.attention(config, weights, x_TD, x_TD, oracle.to_earlier),
        "feed_forward": lambda weights, x_TD: oracle.feed_forward(config, weights, x_TD),
    }


def pre_norm(config, weights, x_TD, layers=None, joined=lambda name, x, y: x + y):
    """Applies layers in a row, each to normalized vectors and joined to the stream."""
    for name, layer in (layers or sublayers(config)).items():
        normalized = oracle.normalize(config, weights[f"{name}_norm"], x_TD)
        x_TD = joined(name, x_TD, layer(weights[name], normalized))
    return x_TD


def blocks(block):
    """Returns the oracle for all blocks, each `block(config, weights, x)`."""

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


def canon(config, weights, x_TD):
    """h'_t = h_t + w_0 h_t + w_1 h_{t-1} + w_2 h_{t-2} + w_3 h_{t-3} of what a layer reads (eq. 1 of Allen-Zhu)."""

    def after(name, layer):
        def apply(own, x_TD):
            taps, read = weights[f"{name}_canon"], x_TD.copy()
            for t in range(len(x_TD)):
                for i in range(min(t + 1, len(taps))):
                    read[t] += taps[-1 - i] * x_TD[t - i]
            return layer(own, read)

        return apply

    return pre_norm(config, weights, x_TD, {name: after(name, layer) for name, layer in sublayers(config).items()})


def product_keys(config, params, x_TD):
    """Σ softmax(q · k) v over the best of all keys, each of two halves (eq. 1 to 4 of Lample et al.)."""

    def memory(weights, x_TD):
        _, n_heads, n, width = weights["keys"].shape
        y_TD = np.zeros_like(x_TD)
        for t, x_D in enumerate(x_TD):
            queries = (x_D @ weights["query"]).reshape(2, n_heads, width)
            for h in range(n_heads):
                halves = weights["keys"][:, h]
                keys = np.array([np.concatenate([halves[0, i], halves[1, j]]) for i in range(n) for j in range(n)])
                scores = keys @ np.concatenate(queries[:, h])
                best = np.argsort(-scores)[:3]
                y_TD[t] += oracle.softmax(scores[best]) @ weights["values"][best]
        return y_TD

    x_TD = pre_norm(config, params["0"], x_TD)
    layers = {"attention": sublayers(config)["attention"], "ProductKeys": memory}
    return pre_norm(config, params["1"], x_TD, layers)


def depths(config, weights, x_TD, n_enter=0):
    """x + r (f(X̃) - x) for tokens of router weight r > 0, or the n best in training (eq. 1 of Raposo et al.)."""
    scores_T = (x_TD @ weights["router"])[:, 0]
    enters = np.sort(np.argsort(-scores_T)[:n_enter]) if n_enter else np.flatnonzero(scores_T > 0)
    y_TD = x_TD.copy()
    if len(enters):
        computed = pre_norm(config, weights["part"], x_TD[enters])
        y_TD[enters] += scores_T[enters, None] * (computed - x_TD[enters])
    in_training = np.isin(np.arange(len(x_TD)), enters)
    entropy = -np.log(1 / (1 + np.exp(np.where(in_training, -scores_T, scores_T)))).mean()
    return y_TD, entropy


def mixture_of_depths(config, params, x_TD):
    return depths(config, params["1"], pre_norm(config, params["0"], x_TD))[0]


def ngpt(config, weights, x_TD):
    """h ← Norm(h + α (Norm(F h) - h)); u s_u SiLU(v s_v) in the feed-forward layer (section 2 of Loshchilov et al.)."""

    def feed_forward(weights, x_TD):
        u = x_TD @ weights["up"] * weights["up_scale"]
        u, v = (u, x_TD @ weights["gate"] * weights["gate_scale"]) if "gate" in weights else (1, u)
        return (u * v / (1 + np.exp(-v))) @ weights["down"]

    for name, layer in (sublayers(config) | {"feed_forward": feed_forward}).items():
        rate = weights[f"{name}_rate"]
        x_TD = unit(x_TD + rate * (unit(layer(weights[name], x_TD)) - x_TD))
    return x_TD


def multi_token(config, weights, x_TD):
    return pre_norm(config, weights, x_TD)


def z_loss(config, weights, x_TD):
    """H = id + p f outside training (eq. 5 of Huang et al.)."""
    return pre_norm(config, weights, x_TD, joined=lambda name, x, y: x + 0.8 * y)


def cross_entropy(logits_TV, targets_T, weights_T):
    losses = [
        -w * np.log(oracle.softmax(row)[target]) for row, target, w in zip(logits_TV, targets_T, weights_T, strict=True)
    ]
    return sum(losses) / np.sum(weights_T)


def logits(config, params, x_TD):
    return oracle.final_layer(params["final"], oracle.normalize(config, params["norm"], x_TD))


def multi_token_objective(config, params, inputs_T, targets_T, weights_T):
    """Σ_i of the cross-entropies of x_{t+i} from head i on the same trunk (eq. 2 of Gloeckle et al.)."""
    *trunk, last = (params["blocks"][str(number)] for number in range(config.n_layers))
    x_TD = oracle.embedding(config, params["embedding"], inputs_T)
    for weights in trunk:
        x_TD = pre_norm(config, weights, x_TD)
    total = 0
    for i, head in enumerate([last, *params["heads"].values()]):
        n = len(inputs_T) - i
        of_head = logits(config, params, pre_norm(config, head, x_TD))[:n]
        total += (config.ahead_weight if i else 1) * cross_entropy(of_head, targets_T[i:], weights_T[i:])
    return total


def z_loss_objective(config, params, inputs_T, targets_T, weights_T):
    """The mean of -log p + z_loss log² Z (section 5 of Chowdhery et al.)."""
    x_TD = oracle.embedding(config, params["embedding"], inputs_T)
    found_TV = logits(config, params, blocks(z_loss)(config, params["blocks"], x_TD))
    squares_T = np.log(np.exp(found_TV).sum(1)) ** 2
    term = config.z_loss * (weights_T * squares_T).sum() / weights_T.sum()
    return cross_entropy(found_TV, targets_T, weights_T) + term


def mixture_of_depths_objective(config, params, inputs_T, targets_T, weights_T):
    x_TD = pre_norm(config, params["blocks"]["0"], oracle.embedding(config, params["embedding"], inputs_T))
    x_TD, entropy = depths(config, params["blocks"]["1"], x_TD, n_enter=math.ceil(len(inputs_T) / 2))
    return cross_entropy(logits(config, params, x_TD), targets_T, weights_T) + 0.3 * entropy


def ngpt_objective(config, params, inputs_T, targets_T, weights_T):
    """All matrices have unit vectors along d_model; logits are z s_z (section 2.1 and 2.6 of Loshchilov et al.)."""
    along = {"table": 1, "kernel": 0, "query": 0, "key": 0, "value": 0, "output": 2, "up": 0, "gate": 0, "down": 1}

    def normalized(tree):
        return {
            name: normalized(w) if isinstance(w, dict) else unit(w, along[name]) if name in along else w
            for name, w in tree.items()
        }

    plain = normalized(params)
    x_TD = blocks(ngpt)(config, plain["blocks"], plain["embedding"]["table"][inputs_T])
    return cross_entropy(x_TD @ plain["final"]["kernel"] * params["logit_scale"], targets_T, weights_T)


BLOCKS = (parallel, layer_scale, squared_relu, looped, canon, ngpt, multi_token, z_loss)
ORACLES = {f.__name__: blocks(f) for f in BLOCKS} | {"ngpt:ungated": blocks(ngpt)}
ORACLES |= {f.__name__: f for f in (unet, hyper_connections, product_keys, mixture_of_depths)}
OBJECTIVES = {
    "mixture_of_depths": (mixture_of_depths_objective, True),
    "multi_token": (multi_token_objective, True),
    "ngpt": (ngpt_objective, False),
    "z_loss": (z_loss_objective, False),
}
