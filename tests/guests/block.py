"""A block whose layers all read the same stream (GPT-J; Wang and Komatsuzaki 2021)."""

from fxf.layers.block import Block
from fxf.runs.experiment import default_config


class Parallel(Block):
    def apply(self, params, x, context):
        total = x
        for name in self.layers:
            y, context = self.layer(params, name, self.norm(params, name, x), context)
            total = total + self.dropout(name, y, context)
        return total, context


def get_config():
    config = default_config("reversal")
    config.model.block = "block:Parallel"
    return config
