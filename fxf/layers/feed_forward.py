"""Feed-forward layer (seed 004, "The Feed Forward layer"), without its norm, which belongs to the block."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp

from fxf.base.config import Choices, one_of
from fxf.base.errors import of_shape
from fxf.base.on_gpu import recomputed
from fxf.base.weights import Params, Spec, Weight
from fxf.layers.config import TransformerConfig
from fxf.layers.layer import Context
from fxf.layers.linear import linear, linear_spec

ACTIVATIONS = Choices(
    {
        "relu": jax.nn.relu,
        # By erf, as in the paper (Hendrycks and Gimpel 2016). The erfc of jax.nn.gelu takes a CPU three times as long.
        "gelu": lambda x: x * (1 + jax.lax.erf(x * 0.5**0.5)) / 2,
        "gelu_tanh": lambda x: jax.nn.gelu(x, approximate=True),
        "silu": jax.nn.silu,
        # gpt-oss (OpenAI 2025); 1.702 makes it nearly the gelu.
        "silu_clamped": lambda x: jnp.minimum(x, LIMIT) * jax.nn.sigmoid(1.702 * jnp.minimum(x, LIMIT)),
    }
)
LIMIT = 7.0


@dataclasses.dataclass(frozen=True)
class Dense:
    """Two linear maps with an activation between them, for each token alone."""

    config: TransformerConfig

    def spec(self) -> Spec:
        """Returns the weights of the maps, and of the gate if there is one."""
        config, spec = self.config, dict[str, Weight]()
        one_of(config.activation, ACTIVATIONS, "model.activation")
        up, down = {"embed": config.d_model, "mlp": config.d_ff}, {"mlp": config.d_ff, "embed": config.d_model}
        for name, axes in {**({"gate": up} if config.gated else {}), "up": up, "down": down}.items():
            spec |= linear_spec(axes, config.feed_forward_bias, (name, f"{name}_bias"))
        return spec

    def apply(self, params: Params, x_RTD: jax.Array, context: Context) -> tuple[jax.Array, Context]:
        """Returns `feed_forward` of the vectors."""
        return feed_forward(self.config, params, x_RTD), context


def feed_forward(
    config: TransformerConfig,
    params: Params,
    x: jax.Array,
    product: Callable[[jax.Array, jax.Array, jax.Array | None], jax.Array] = linear,
) -> jax.Array:
    """Returns f(x up + up_bias) down + down_bias for x [..., D], where f is the activation.

    A gated layer returns (f(x gate + gate_bias) ⊙ (x up + up_bias)) down + down_bias (Shazeer 2020); with silu_clamped,
    the second factor is clipped to ±7, plus 1. Without feed_forward_bias there are no biases.

    Args:
      product: `product(x, w, bias)` returns x w + bias; experts have a product of their own.
    """
    activation = ACTIVATIONS[config.activation]
    hidden = product(x, params["up"], params.get("up_bias"))
    if config.gated:
        hidden = jnp.clip(hidden, -LIMIT, LIMIT) + 1 if config.activation == "silu_clamped" else hidden
        gate = product(x, params["gate"], params.get("gate_bias"))
        hidden = of_shape(activation(gate), gate.shape, config.activation) * hidden
    else:
        hidden = of_shape(recomputed(activation)(hidden), hidden.shape, config.activation)
    return product(hidden, params["down"], params.get("down_bias"))
