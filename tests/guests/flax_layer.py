"""A layer: a module of Flax NNX, the feed-forward layer with the largest of several linear maps as its activation."""

from flax import nnx

from fxf.runs.experiment import default_config


class Maxout(nnx.Module):
    cached = True  # each token is read alone

    def __init__(self, d_model: int, d_ff: int, pieces: int = 2, *, rngs: nnx.Rngs):
        self.up = nnx.LinearGeneral(d_model, (d_ff, pieces), rngs=rngs)
        self.down = nnx.Linear(d_ff, d_model, rngs=rngs)

    def __call__(self, x_RTD):
        return self.down(self.up(x_RTD).max(-1))


def get_config():
    config = default_config("reversal")
    config.model.feed_forward = "flax_layer:Maxout"
    return config
