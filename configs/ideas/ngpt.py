"""nGPT: vectors of the stream and rows of all matrices have length 1, so that a layer moves the stream on a sphere.

Loshchilov et al. 2024, "nGPT: Normalized Transformer with Representation Learning on the Hypersphere",
arXiv 2410.01131. The matrices are normalized where they are used, not after each step. Queries and keys have the norms
of model.qk_norm, whose scales come before the rotation. Weights that the paper stores scaled down have a higher
learning rate here instead.

fxf train --config=ideas/ngpt --workdir=runs/ngpt

Without a warm-up all reversals are right (exact_match 1). It takes seconds, mostly for compilation.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax.nn.initializers import constant
from ml_collections import ConfigDict

import fxf
from fxf.base.config import key
from fxf.base.weights import Params, Spec, Weight, map_weights
from fxf.layers.block import Block
from fxf.layers.feed_forward import Dense
from fxf.layers.layer import Context
from fxf.layers.linear import as_float32
from fxf.models import RegisteredModel
from fxf.models.transformer_lm import TransformerLM, TransformerLMConfig, transformer_lm


def unit(x: jax.Array, axis: int = -1) -> jax.Array:
    """Returns x over its length along an axis."""
    return (x * jax.lax.rsqrt(jnp.square(as_float32(x)).sum(axis, keepdims=True) + 1e-12)).astype(x.dtype)


class UnitDense(Dense):
    """The gated layer (silu(s_v ⊙ x gate) ⊙ s_u ⊙ x up) down, with vectors s_u and s_v [F]; s_v starts at √D.

    Without model.gated it is silu(s_u ⊙ x up) down, and s_u starts at √D.
    """

    def spec(self) -> Spec:
        first = {"gate": self.config.d_model**0.5, "up": 1.0} if self.config.gated else {"up": self.config.d_model**0.5}
        vectors = {name: Weight((self.config.d_ff,), ("mlp",), constant(a), rate=a) for name, a in first.items()}
        return {**super().spec(), **{f"{name}_scale": vector for name, vector in vectors.items()}}

    def apply(self, params: Params, x: jax.Array, context: Context) -> tuple[jax.Array, Context]:
        scaled = {name: w * params[f"{name}_scale"][None] for name, w in params.items() if f"{name}_scale" in params}
        return super().apply({**params, **scaled}, x, context)


@dataclasses.dataclass(frozen=True)
class Sphere(Block):
    """unit(X + α ⊙ (unit(F X) - X)) for each layer F in turn, with a vector α [D] for each."""

    first_rate: float = key(0.05, "initial α, of the order of 1 / n_layers", above=0)
    norms = ()

    def spec(self) -> Spec:
        d_model, first = self.config.d_model, self.first_rate
        rate = Weight((d_model,), ("embed",), constant(first), rate=first * d_model**0.5)
        return {**super().spec(), **{f"{name}_rate": rate for name in self.layers}}

    def apply(self, params: Params, x: Any, context: Context) -> tuple[Any, Context]:
        for name in self.layers:
            y, context = self.layer(params, name, x, context)
            rate = params[f"{name}_rate"].astype(x.dtype)[None, None]
            x = unit(x + rate * (unit(self.dropout(name, y, context)) - x))
        return x, context


class NGPT(TransformerLM):
    """A model whose matrices have rows (or columns) of length 1 along d_model, with a factor for each logit."""

    def spec(self) -> Spec:
        scale = Weight((self.vocab_size,), ("vocabulary",), constant(1.0), rate=self.config.d_model**0.5)
        return {**super().spec(), "logit_scale": scale}

    def of_decoder(self, params: Params) -> Params:
        return super().of_decoder(self.plain(params))

    def embed(self, params: Params, *tokens: Any, **rest: Any) -> jax.Array:
        return super().embed(self.plain(params), *tokens, **rest)

    def readout(self, params: Params, x: jax.Array) -> jax.Array:
        return super().readout(self.plain(params), x) * params["logit_scale"].reshape((1,) * (x.ndim - 1) + (-1,))

    def plain(self, params: Params) -> Params:
        """Returns the params with matrices normalized along d_model; weights without that axis do not change."""
        axes = map_weights(lambda _, w: w.axes.index("embed") if {"embed"} < {*w.axes} else -1, self.spec())
        return jax.tree.map(lambda axis, w: w if axis < 0 else unit(w, axis), axes, params)


MODEL = RegisteredModel(TransformerLMConfig, lambda config, size: transformer_lm(config, size, NGPT), "transformer_lm")


def get_config() -> ConfigDict:
    config = fxf.read_config("reversal:example0")
    config.model.update(name="ngpt:MODEL", block="ngpt:Sphere", feed_forward="ngpt:UnitDense", activation="silu")
    config.model.update(gated=True, feed_forward_bias=False, attention_bias="none")
    config.model.update(positions="rotary", qk_norm=True, final_norm=False, final_bias=False)
    config.optimizer.warmup_steps = 0
    return config
