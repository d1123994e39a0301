"""A model: a language model that reads the mean of the vectors of all tokens so far, and the last one."""

import dataclasses

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from fxf.base.config import key
from fxf.base.weights import Weight, fan_in
from fxf.layers.cache import Cache
from fxf.models import RegisteredModel
from fxf.models.model import Model
from fxf.runs.experiment import default_config


@dataclasses.dataclass(frozen=True)
class MeanConfig:
    name: str = "mean"
    d_model: int = 8
    max_len: int = key(60, "longest sequence", minimum=1)


def mean(config, vocab_size):
    table = Weight((vocab_size, config.d_model), ("vocabulary", "embed"), jax.nn.initializers.normal(1.0))
    final = Weight((2 * config.d_model, vocab_size), ("mlp", "vocabulary"), fan_in())

    def features(params, batch, *, rng=None):
        x_BTD = params["table"][batch["inputs"]]
        order_T = jnp.arange(x_BTD.shape[1])
        earlier_TT = (order_T[:, None] >= order_T[None]) / (order_T[:, None] + 1)
        return join(jnp.einsum("TS,BSD->BTD", earlier_TT, x_BTD), x_BTD)

    def join(means, last):
        return checkpoint_name(jnp.concatenate([means, last], -1), "residual")

    def readout(params, x):
        return x @ params["final"]

    def prefill(params, batch, length):
        read_BT = jnp.arange(batch["inputs"].shape[1])[None] < batch["lengths"][:, None]
        return Cache(jnp.einsum("BT,BTD->BD", read_BT, params["table"][batch["inputs"]]), batch["lengths"])

    def step(params, cache, tokens_B):
        x_BD = params["table"][tokens_B]
        sums_BD, lengths_B = cache.layers + x_BD, cache.lengths + 1
        return readout(params, join(sums_BD / lengths_B[:, None], x_BD)), Cache(sums_BD, lengths_B)

    return Model({"table": table, "final": final}, features, readout, prefill, step, max_len=config.max_len)


MEAN = RegisteredModel(MeanConfig, mean, in_place_of="transformer_lm")


def get_config():
    return default_config("reversal", model="model:MEAN")
