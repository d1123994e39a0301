"""A block whose sublayers all read the same stream (GPT-J; Wang and Komatsuzaki 2021)."""

from fxf.layers.block_kinds import Block
from fxf.runs.experiment import default_config


def parallel(x_BTD, sublayers):
    return x_BTD + sum(layer.dropout(layer.output(layer.norm(x_BTD))) for layer in sublayers)


PARALLEL = Block(parallel)


def get_config():
    config = default_config("reversal")
    config.model.block = "block:PARALLEL"
    return config
