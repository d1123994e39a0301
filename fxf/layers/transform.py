"""The dense layer before the map to logits (Devlin et al. 2018, for masked tokens)."""

import jax

from fxf.layers.config import TransformerConfig
from fxf.layers.feed_forward import ACTIVATIONS
from fxf.layers.linear import linear
from fxf.layers.normalization import normalization_spec, normalize
from fxf.weights import Params, Spec, Weight, fan_in


def transform_spec(config: TransformerConfig) -> Spec:
    """Returns the weights of the layer."""
    d_model = config.d_model
    return {
        "kernel": Weight((d_model, d_model), ("embed", "mlp"), fan_in()),
        "bias": Weight((d_model,), ("mlp",), jax.nn.initializers.zeros),
        "norm": normalization_spec(config),
    }


def transform(config: TransformerConfig, params: Params, x: jax.Array) -> jax.Array:
    """Returns norm(activation(x kernel + bias)) for x [..., D]."""
    hidden = ACTIVATIONS[config.activation](linear(x, params["kernel"], params["bias"]))
    return normalize(config, params["norm"], hidden)
