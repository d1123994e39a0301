"""Feed-forward layer with its own normalization inside (seed 004, "The Feed Forward layer")."""

import jax

from fxf.config import TransformerConfig
from fxf.layers.linear import linear
from fxf.layers.normalization import normalization_spec, normalize
from fxf.weights import Params, Spec, Weight, fan_in


def feed_forward_spec(config: TransformerConfig) -> Spec:
    d_model, d_ff = config.d_model, config.d_ff
    return {
        "norm": normalization_spec(d_model),
        "up": Weight((d_model, d_ff), ("embed", "mlp"), fan_in()),
        "up_bias": Weight((d_ff,), ("mlp",), jax.nn.initializers.zeros),
        "down": Weight((d_ff, d_model), ("mlp", "embed"), fan_in()),
        "down_bias": Weight((d_model,), ("embed",), jax.nn.initializers.zeros),
    }


def feed_forward(params: Params, x_BTD: jax.Array) -> jax.Array:
    """FF(X) = ReLU(N(X) A + K) B + L, row by row."""
    hidden_BTF = jax.nn.relu(linear(normalize(params["norm"], x_BTD), params["up"], params["up_bias"]))
    return linear(hidden_BTF, params["down"], params["down_bias"])
