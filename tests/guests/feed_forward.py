"""A feed-forward layer: a mixture of two dense ones, weighted for each token by a softmax (Jacobs et al. 1991)."""

import jax

from fxf.layers.feed_forward import FeedForward, dense, dense_spec
from fxf.layers.linear import linear
from fxf.runs.experiment import default_config
from fxf.weights import Weight, fan_in


def spec(config):
    choice = Weight((config.d_model, 2), ("embed", "experts"), fan_in())
    return {"choice": choice, "first": dense_spec(config), "second": dense_spec(config)}


def mixture(config, params, x_BTD):
    weights_BT2 = jax.nn.softmax(linear(x_BTD, params["choice"]))
    first_BTD, second_BTD = (dense(config, params[name], x_BTD) for name in ("first", "second"))
    return weights_BT2[..., :1] * first_BTD + weights_BT2[..., 1:] * second_BTD


MIXTURE = FeedForward(spec, mixture)


def get_config():
    config = default_config("reversal")
    config.model.feed_forward = "feed_forward:MIXTURE"
    return config
