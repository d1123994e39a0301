"""Feed-forward layer (seed 004, "The Feed Forward layer"). The block has its normalization."""

import jax

from fxf.config import one_of
from fxf.layers.config import TransformerConfig
from fxf.layers.linear import linear
from fxf.weights import Params, Spec, Weight, fan_in

ACTIVATIONS = {
    "relu": jax.nn.relu,
    # By erf, as in the paper (Hendrycks and Gimpel 2016). The erfc of jax.nn.gelu takes a CPU three times as long.
    "gelu": lambda x: x * (1 + jax.lax.erf(x * 0.5**0.5)) / 2,
    "gelu_tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "silu": jax.nn.silu,
}


def feed_forward_spec(config: TransformerConfig) -> Spec:
    """Returns the weights of a feed-forward layer; raises a UserError if the activation is unknown."""
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
    """Returns f(x up + up_bias) down + down_bias, [B, T, D], where f is the activation.

    A gated layer returns (f(x gate + gate_bias) ⊙ (x up + up_bias)) down + down_bias (Shazeer 2020).
    """
    activation = ACTIVATIONS[config.activation]
    hidden_BTF = linear(x_BTD, params["up"], params["up_bias"])
    if config.gated:
        hidden_BTF = activation(linear(x_BTD, params["gate"], params["gate_bias"])) * hidden_BTF
    else:
        hidden_BTF = activation(hidden_BTF)
    return linear(hidden_BTF, params["down"], params["down_bias"])
