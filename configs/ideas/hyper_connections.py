"""Hyper-connections: several residual streams, which each layer learns to read, to mix and to write.

Zhu et al. 2024, "Hyper-Connections", arXiv 2409.19606; these are the dynamic ones.

fxf train --config=ideas/hyper_connections --workdir=runs/hyper_connections

Four streams learn all reversals (exact_match 1). It takes seconds, mostly for compilation.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

import fxf
from fxf.base.config import key
from fxf.base.weights import Params, Spec, Weight
from fxf.layers.block import Block
from fxf.layers.layer import Context
from fxf.layers.linear import as_float32
from fxf.layers.normalization import normalization_spec, normalize


def first_mix(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """Returns (e_k, I) [M, 1 + M]: the layer reads a random stream k, and the streams do not mix."""
    read = jax.nn.one_hot(jax.random.randint(key, (1,), 0, shape[0]), shape[0], dtype=dtype)
    return jnp.concatenate([read.T, jnp.eye(shape[0], dtype=dtype)], 1)


@dataclasses.dataclass(frozen=True)
class HyperConnections(Block):
    """A layer F reads Σ α_m X_m of the streams X [R, T, M, D], which become Aᵀ X + β F. The output is their sum.

    α [M], A [M, M] and β [M] are each a weight plus s · tanh(N X W), for each token.
    """

    streams: int = key(4, "number M of residual streams", minimum=1)
    first_scale: float = key(0.01, "initial s, the factor of the part that depends on the token")

    def spec(self) -> Spec:
        m, d, init = self.streams, self.config.d_model, jax.nn.initializers
        connections = {
            "norm": normalization_spec(self.config),
            "mix": Weight((m, 1 + m), ("streams", "reads"), first_mix),
            "mix_by": Weight((d, 1 + m), ("embed", "reads"), init.zeros),
            "write": Weight((m,), ("streams",), init.ones),
            "write_by": Weight((d, 1), ("embed", "reads"), init.zeros),
            "scale": Weight((2,), ("reads",), init.constant(self.first_scale)),
        }
        return {**super().spec(), **{f"{name}_streams": connections for name in self.layers}}

    def start(self, x: jax.Array) -> jax.Array:
        return jnp.repeat(x[:, :, None], self.streams, 2)

    def finish(self, x: jax.Array) -> jax.Array:
        return x.sum(2)

    def apply(self, params: Params, x: Any, context: Context) -> tuple[Any, Context]:
        for name in self.layers:
            own = params[f"{name}_streams"]
            normalized = as_float32(normalize(self.config, own["norm"], x))
            mix = own["scale"][0] * jnp.tanh(normalized @ own["mix_by"]) + own["mix"][None, None]
            write = own["scale"][1] * jnp.tanh(normalized @ own["write_by"]) + own["write"][None, None, :, None]
            mixed = jnp.einsum("RTMj,RTMD->RTjD", mix.astype(x.dtype), x)
            y, context = self.layer(params, name, self.norm(params, name, mixed[:, :, 0]), context)
            x = mixed[:, :, 1:] + write.astype(x.dtype) * self.dropout(name, y, context)[:, :, None]
        return x, context


def get_config() -> ConfigDict:
    config = fxf.read_config("reversal:example0")
    config.model.block = "hyper_connections:HyperConnections"
    return config
