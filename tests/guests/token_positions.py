"""A kind of positions that the tokens make: token 0 takes a trained pace of each head, and others a pace of 1."""

import jax
import jax.numpy as jnp

from fxf.layers.positions import POSITIONS
from fxf.runs.experiment import default_config
from fxf.weights import Weight


def spec(config, vocab_size):
    return {"pace": Weight((config.n_heads,), ("heads",), jax.nn.initializers.ones)}


def from_tokens(params, tokens_BT, before_BHJ):
    paces_BHT = jnp.where(tokens_BT[:, None] == 0, params["pace"][None, :, None], 1.0)
    return before_BHJ[:, :, None] + jnp.cumsum(paces_BHT, axis=-1)[..., None]


def penalty(config, params, step):
    return 0.01 * jnp.square(params["pace"] - 1).sum()


PACED = POSITIONS["alibi"]._replace(spec=spec, from_tokens=from_tokens, penalty=penalty)


def get_config():
    config = default_config("reversal")
    config.model.positions = "token_positions:PACED"
    return config
