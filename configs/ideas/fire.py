"""FIRE: a small network maps the distance, relative to the query's position, to a bias that is added to the score.

Li et al. 2023, "Functional Interpolation for Relative Positions Improves Long Context Transformers", arXiv 2310.04418.
The bias is f(ψ(i - j) / ψ(max(i, L))) with ψ(x) = log(c x + 1), for trained c and L. So its input stays between 0 and 1
at any length.

fxf train --config=ideas/fire --workdir=runs/fire

Reversal without other positions: exact_match 0.86 after 600 steps, and 0.39 on longer sequences than in training; 0.39
and 0.00 with plain attention, 0.99 and 0.00 with a trained table of positions.
It takes about 20 seconds of processor time. The results are those of seed 0.
"""

import dataclasses

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

import fxf
from fxf.base.config import key
from fxf.base.weights import Params, Spec, Weight, fan_in
from fxf.layers.attention import Attention
from fxf.layers.layer import Places


@dataclasses.dataclass(frozen=True)
class Fire(Attention):
    """Attention with a bias of the scores by the distance and the query's position."""

    width: int = key(32, "width of the hidden layer of f", minimum=1)
    slope: float = key(0.1, "initial c", above=0)
    threshold: float = key(512.0, "initial L: distances are divided by no smaller position than this", above=0)

    def spec(self) -> Spec:
        n_heads, constant, zeros = self.config.n_heads, jax.nn.initializers.constant, jax.nn.initializers.zeros
        return {
            **super().spec(),
            "slope": Weight((1,), ("fire",), constant(self.slope)),
            "threshold": Weight((1,), ("fire",), constant(self.threshold)),
            "hidden": Weight((self.width,), ("fire_mlp",), jax.nn.initializers.normal(1.0)),
            "hidden_bias": Weight((self.width,), ("fire_mlp",), zeros),
            "distances": Weight((self.width, n_heads), ("fire_mlp", "heads"), fan_in()),
            "distances_bias": Weight((n_heads,), ("heads",), zeros),
        }

    def bias(self, params: Params, queries: Places, keys: Places) -> jax.Array:
        def squeezed(x_BTC: jax.Array) -> jax.Array:
            return jnp.log(jnp.abs(params["slope"].reshape(1, 1, 1) * x_BTC) + 1)

        distance_BTC = queries.positions[:, :, None] - keys.positions[:, None]
        least = jnp.abs(params["threshold"]).reshape(1, 1, 1)
        share_BTC = squeezed(distance_BTC) / squeezed(jnp.maximum(queries.positions[:, :, None], least))
        hidden = share_BTC[..., None] * params["hidden"].reshape(1, 1, 1, -1)
        hidden = jax.nn.relu(hidden + params["hidden_bias"].reshape(1, 1, 1, -1))
        bias_BTCH = hidden @ params["distances"] + params["distances_bias"].reshape(1, 1, 1, -1)
        return jnp.moveaxis(bias_BTCH, -1, 1)


def get_config() -> ConfigDict:
    config = fxf.read_config("reversal:short")
    config.model.attention, config.model.positions = "fire:Fire", "none"
    config.model.layers = {"attention": {"threshold": 4.0}}
    return config
