"""z-loss and stochastic depth: logits stay near 0, where softmax is precise, and training skips layers at random.

z-loss: Chowdhery et al. 2022 (PaLM), arXiv 2204.02311, section 5. Stochastic depth: Huang et al. 2016, "Deep Networks
with Stochastic Depth", arXiv 1603.09382, with one rate for all blocks, and drawn for each row of a batch.

fxf train --config=ideas/z_loss --workdir=runs/z_loss

Four blocks learn all reversals (exact_match 1), although a step skips a fifth of the layers. metrics.jsonl has
term/z_loss. It takes seconds, mostly for compilation.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

import fxf
from fxf.base.config import key
from fxf.layers.block import PreNorm
from fxf.layers.layer import Context
from fxf.layers.loss import Loss, cross_entropy
from fxf.layers.named import term
from fxf.models import RegisteredModel
from fxf.models.model import Model
from fxf.models.transformer_lm import TransformerLMConfig, transformer_lm


@dataclasses.dataclass(frozen=True)
class StochasticDepth(PreNorm):
    """X + b F(N X) for each layer F in turn, b = 1 with probability p, else 0; outside training X + p F(N X)."""

    survival: float = key(0.8, "the probability p that a layer computes", above=0, below=1)

    def dropout(self, name: str, y: jax.Array, context: Context) -> jax.Array:
        y = super().dropout(name, y, context)
        if context.rng is None:
            return self.survival * y
        rng = jax.random.fold_in(context.rng, list(self.layers).index(name))
        survives = jax.random.bernoulli(rng, self.survival, (len(y), *(1 for _ in y.shape[1:])))
        return jnp.where(survives, y, 0)


@dataclasses.dataclass(frozen=True)
class ZLossConfig(TransformerLMConfig):
    """The `model` section of a transformer with a z-loss."""

    z_loss: float = key(1e-4, "factor of the mean of log²(Σ_v e^logit_v), a term of the objective", minimum=0)


def z_loss_model(config: ZLossConfig, vocab_size: int) -> Model:
    """Returns the transformer whose objective has the term."""

    def sums(readout: Any, features: Any, targets: Any, weights: Any, smoothing: Any = None, **options: Any) -> Any:
        logits_BTV = readout(features)[..., :vocab_size]
        squares_BT = jnp.square(jax.nn.logsumexp(logits_BTV, axis=-1))
        term("z_loss", config.z_loss * jnp.sum(weights * squares_BT), jnp.sum(weights))
        return cross_entropy(readout, features, targets, weights, smoothing, **options)

    return transformer_lm(config, vocab_size)._replace(loss=Loss(sums, of_logits=True))


MODEL = RegisteredModel(ZLossConfig, z_loss_model, "transformer_lm")


def get_config() -> ConfigDict:
    config = fxf.read_config("reversal:example0")
    with config.unlocked():
        config.model.update(name="z_loss:MODEL", block="z_loss:StochasticDepth", n_layers=4, z_loss=1e-4)
    return config
