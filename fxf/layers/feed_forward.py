"""Feed-forward layer (seed 004, "The Feed Forward layer"). The block has its normalization."""

from collections.abc import Callable
from typing import NamedTuple

import jax

from fxf.config import Choices, one_of
from fxf.layers.config import TransformerConfig
from fxf.layers.linear import linear
from fxf.machine.on_gpu import recomputed
from fxf.weights import Params, Spec, Weight, fan_in

ACTIVATIONS = Choices(
    {
        "relu": jax.nn.relu,
        # By erf, as in the paper (Hendrycks and Gimpel 2016). The erfc of jax.nn.gelu takes a CPU three times as long.
        "gelu": lambda x: x * (1 + jax.lax.erf(x * 0.5**0.5)) / 2,
        "gelu_tanh": lambda x: jax.nn.gelu(x, approximate=True),
        "silu": jax.nn.silu,
    }
)


class FeedForward(NamedTuple):
    """A kind of feed-forward layer.

    Attributes:
      spec: returns its weights.
      update: `update(config, params, x_BTD)` returns its output, [B, T, D]. Each token is read alone.
    """

    spec: Callable[[TransformerConfig], Spec]
    update: Callable[[TransformerConfig, Params, jax.Array], jax.Array]


def dense_spec(config: TransformerConfig) -> Spec:
    """Returns the weights of two linear maps, and of a gate if it is gated; raises a UserError for its activation."""
    one_of(config.activation, ACTIVATIONS, "model.activation")
    sizes = {"embed": config.d_model, "mlp": config.d_ff}

    def linear_map(name: str, *axes: str) -> Spec:
        shape = tuple(sizes[axis] for axis in axes)
        bias = Weight(shape[1:], axes[1:], jax.nn.initializers.zeros)
        return {name: Weight(shape, axes, fan_in()), **({f"{name}_bias": bias} if config.feed_forward_bias else {})}

    return {
        **(linear_map("gate", "embed", "mlp") if config.gated else {}),
        **linear_map("up", "embed", "mlp"),
        **linear_map("down", "mlp", "embed"),
    }


def dense(config: TransformerConfig, params: Params, x_BTD: jax.Array) -> jax.Array:
    """Returns f(x up + up_bias) down + down_bias, [B, T, D], where f is the activation.

    A gated layer returns (f(x gate + gate_bias) ⊙ (x up + up_bias)) down + down_bias (Shazeer 2020). Without
    feed_forward_bias there are no biases.
    """
    activation = ACTIVATIONS[config.activation]
    hidden_BTF = linear(x_BTD, params["up"], params.get("up_bias"))
    if config.gated:
        hidden_BTF = activation(linear(x_BTD, params["gate"], params.get("gate_bias"))) * hidden_BTF
    else:
        hidden_BTF = recomputed(activation)(hidden_BTF)
    return linear(hidden_BTF, params["down"], params.get("down_bias"))


FEED_FORWARDS: Choices[FeedForward] = Choices({"dense": FeedForward(dense_spec, dense)})


def feed_forward_spec(config: TransformerConfig) -> Spec:
    """Returns the weights of a feed-forward layer; raises a UserError if its kind or its activation is unknown."""
    return FEED_FORWARDS[one_of(config.feed_forward, FEED_FORWARDS, "model.feed_forward")].spec(config)


def feed_forward(config: TransformerConfig, params: Params, x_BTD: jax.Array) -> jax.Array:
    """Returns the output of the feed-forward layer, [B, T, D]."""
    return FEED_FORWARDS[config.feed_forward].update(config, params, x_BTD)
