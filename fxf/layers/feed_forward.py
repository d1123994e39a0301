"""Feed-forward layer (seed 004, "The Feed Forward layer"; its normalization belongs to the block here)."""

import jax

from fxf.config import one_of
from fxf.layers.config import TransformerConfig
from fxf.layers.linear import linear
from fxf.weights import Params, Spec, Weight, fan_in

ACTIVATIONS = {
    "relu": jax.nn.relu,
    # As in its paper (Hendrycks and Gimpel 2016); the erfc of jax.nn.gelu costs a CPU three times as much.
    "gelu": lambda x: x * (1 + jax.lax.erf(x * 0.5**0.5)) / 2,
    "gelu_tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "silu": jax.nn.silu,
}


def feed_forward_spec(config: TransformerConfig) -> Spec:
    one_of(config.activation, ACTIVATIONS, "model.activation")
    d_model, d_ff, zeros = config.d_model, config.d_ff, jax.nn.initializers.zeros
    gate = {
        "gate": Weight((d_model, d_ff), ("embed", "mlp"), fan_in()),
        "gate_bias": Weight((d_ff,), ("mlp",), zeros),
    }
    return {
        **(gate if config.gated else {}),
        "up": Weight((d_model, d_ff), ("embed", "mlp"), fan_in()),
        "up_bias": Weight((d_ff,), ("mlp",), zeros),
        "down": Weight((d_ff, d_model), ("mlp", "embed"), fan_in()),
        "down_bias": Weight((d_model,), ("embed",), zeros),
    }


def feed_forward(config: TransformerConfig, params: Params, x_BTD: jax.Array) -> jax.Array:
    """FF(X) = activation(X A + K) B + L, row by row; gated, (activation(X G + M) ⊙ (X A + K)) B + L (Shazeer 2020)."""
    activation = ACTIVATIONS[config.activation]
    hidden_BTF = linear(x_BTD, params["up"], params["up_bias"])
    if config.gated:
        hidden_BTF = activation(linear(x_BTD, params["gate"], params["gate_bias"])) * hidden_BTF
    else:
        hidden_BTF = activation(hidden_BTF)
    return linear(hidden_BTF, params["down"], params["down_bias"])
