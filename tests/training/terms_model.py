"""A model with terms, metrics and moved weights in its blocks, and its objective by hand."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fxf.base.weights import Weight
from fxf.layers.named import figure, moved, term
from fxf.models.model import Model

ROWS, LENGTH, VOCAB_SIZE, WIDTH, BLOCKS, SMOOTHING = 8, 3, 11, 4, 3, 0.1
SPEC = {
    "table": Weight((VOCAB_SIZE, WIDTH), ("vocabulary", "embed"), jax.nn.initializers.normal(1.0)),
    "scales": Weight((BLOCKS, WIDTH), ("layers", "embed"), jax.nn.initializers.normal(1.0)),
}


def update(x, scale):
    return x + jnp.sin(jnp.broadcast_to(scale, x.shape) * x)


def block(x, scale, real):
    """A block that reads rows [B, T, D], or one row [T, D]."""
    x = update(x, scale)
    term("square", (jnp.square(x).mean(-1) * real).sum(), (jnp.abs(x).mean(-1) * real).sum())
    term("size", jnp.abs(x).sum(), x.size)
    moved("scale", scale, x.mean(tuple(range(x.ndim - 1))))
    figure("mean", x.mean())
    return x


def in_a_row(params, x, real, wrap=lambda f: f):
    for scale in params["scales"]:
        x = wrap(block)(x, scale, real)
    return x


def in_a_loop(params, x, real, wrap=lambda f: f):
    return jax.lax.scan(lambda x, scale: (wrap(block)(x, scale, real), None), x, params["scales"])[0]


FORMS = {
    "in a row": in_a_row,
    "in a loop, each computed again": functools.partial(in_a_loop, wrap=lambda f: jax.checkpoint(jax.jit(f))),
    "row by row": lambda params, x, real: jax.vmap(in_a_row, (None, 0, 0))(params, x, real),
}


def model_of(form="in a loop, each computed again"):
    def features(params, batch, *, rng=None):
        x = FORMS[form](params, params["table"][batch["inputs"]], batch["weights"] > 0)
        figure("logits", jax.nn.logsumexp(x @ params["table"].T, axis=-1).mean())
        return x

    return Model(SPEC, features, lambda params, x: x @ params["table"].T, width=WIDTH)


def batch():
    """Returns a batch whose parts have different numbers of weighted tokens."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, VOCAB_SIZE, (2, ROWS, LENGTH)).astype(np.int32)
    weights = rng.uniform(0.1, 2, (ROWS, LENGTH)).astype(np.float32)
    weights[0], weights[5, 1:] = 0, 0
    return {"inputs": tokens[0], "targets": tokens[1], "weights": weights}


def by_hand(params, batch):
    """Returns the gradient of mean loss and terms, with moved weights, and the metrics, without named arrays."""
    real = jnp.asarray(batch["weights"] > 0, jnp.float32)

    def objective(params):
        x, streams = params["table"][batch["inputs"]], []
        for scale in params["scales"]:
            x = update(x, scale)
            streams.append(x)
        shares = optax.smooth_labels(jax.nn.one_hot(batch["targets"], VOCAB_SIZE), SMOOTHING)
        losses = optax.softmax_cross_entropy(x @ params["table"].T, shares)
        weights = [jax.lax.stop_gradient((jnp.abs(x).mean(-1) * real).sum()) for x in streams]
        squares = sum((jnp.square(x).mean(-1) * real).sum() / w for x, w in zip(streams, weights, strict=True))
        sizes = sum(jnp.abs(x).mean() for x in streams)
        loss = (losses * batch["weights"]).sum() / batch["weights"].sum()
        means = jnp.stack([x.mean((0, 1)) for x in streams])
        metrics = {"term/square": squares, "term/size": sizes, "figure/mean": means.mean()}
        metrics["figure/logits"] = jax.nn.logsumexp(x @ params["table"].T, axis=-1).mean()
        return loss + squares + sizes, (metrics, means)

    gradient, (metrics, moves) = jax.grad(objective, has_aux=True)(params)
    return {**gradient, "scales": gradient["scales"] + moves}, metrics
