"""A model: a module of Flax Linen, causal attention and a feed-forward layer."""

import dataclasses

import flax.linen as nn

from fxf.layers.named import named
from fxf.models import RegisteredModel
from fxf.models.flax_model import of_module
from fxf.runs.experiment import default_config


class OneBlock(nn.Module):
    width: int
    vocab_size: int

    @nn.compact
    def __call__(self, tokens_BT):
        x_BTD = nn.Embed(self.vocab_size, self.width)(tokens_BT)
        x_BTD += nn.MultiHeadDotProductAttention(num_heads=2)(x_BTD, mask=nn.make_causal_mask(tokens_BT))
        x_BTD = named("residual", x_BTD + nn.Dense(self.width)(nn.gelu(nn.Dense(4 * self.width)(x_BTD))))
        return nn.Dense(self.vocab_size)(x_BTD)


@dataclasses.dataclass(frozen=True)
class OneBlockConfig:
    name: str = "one_block"
    width: int = 8
    max_len: int = 60


def one_block(config, vocab_size):
    return of_module(OneBlock(config.width, vocab_size), vocab_size, max_len=config.max_len)


ONE_BLOCK = RegisteredModel(OneBlockConfig, one_block, in_place_of="transformer_lm")


def get_config():
    return default_config("reversal", model="flax_model:ONE_BLOCK")
