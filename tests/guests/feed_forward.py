"""A feed-forward layer: a mixture of two dense ones, weighted for each token by a softmax (Jacobs et al. 1991)."""

import dataclasses

import jax

from fxf.base.weights import Weight, fan_in
from fxf.layers.config import TransformerConfig
from fxf.layers.feed_forward import Dense
from fxf.layers.linear import linear
from fxf.runs.experiment import default_config


@dataclasses.dataclass(frozen=True)
class Mixture:
    config: TransformerConfig
    d_model: int

    def spec(self):
        choice = Weight((self.d_model, 2), ("embed", "experts"), fan_in())
        return {"choice": choice, "first": Dense(self.config).spec(), "second": Dense(self.config).spec()}

    def apply(self, params, x_BTD, context):
        weights_BT2 = jax.nn.softmax(linear(x_BTD, params["choice"]))
        dense = Dense(self.config)
        first_BTD, second_BTD = (dense.apply(params[name], x_BTD, context)[0] for name in ("first", "second"))
        return weights_BT2[..., :1] * first_BTD + weights_BT2[..., 1:] * second_BTD, context


def get_config():
    config = default_config("reversal")
    config.model.feed_forward = "feed_forward:Mixture"
    return config
