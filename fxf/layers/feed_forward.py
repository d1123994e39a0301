"""Feed-forward layer (seed 004, "The Feed Forward layer"; its normalization belongs to the block here)."""

import jax

from fxf.config import TransformerConfig
from fxf.layers.linear import linear
from fxf.weights import Params, Spec, Weight, fan_in

# GELU as in its paper (Hendrycks and Gimpel 2016), not the tanh approximation.
ACTIVATIONS = {"relu": jax.nn.relu, "gelu": lambda x: jax.nn.gelu(x, approximate=False)}


def feed_forward_spec(config: TransformerConfig) -> Spec:
    d_model, d_ff = config.d_model, config.d_ff
    return {
        "up": Weight((d_model, d_ff), ("embed", "mlp"), fan_in()),
        "up_bias": Weight((d_ff,), ("mlp",), jax.nn.initializers.zeros),
        "down": Weight((d_ff, d_model), ("mlp", "embed"), fan_in()),
        "down_bias": Weight((d_model,), ("embed",), jax.nn.initializers.zeros),
    }


def feed_forward(config: TransformerConfig, params: Params, x_BTD: jax.Array) -> jax.Array:
    """FF(X) = activation(X A + K) B + L, row by row."""
    hidden_BTF = ACTIVATIONS[config.activation](linear(x_BTD, params["up"], params["up_bias"]))
    return linear(hidden_BTF, params["down"], params["down_bias"])
