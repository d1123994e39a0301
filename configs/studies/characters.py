"""Study: character models of a natural text, by kind of position.

fxf sweep --config=studies/characters --config.data.path=input.txt --workdir=runs/studies/characters

input.txt is tinyshakespeare, from karpathy/char-rnn; it does not come with fxf. Without it the phrase book is the text.
"""

from collections.abc import Callable

from ml_collections import ConfigDict

from fxf.runs.experiment import default_config
from fxf.sweeps.points import grid

KINDS = ("none", "learned", "sinusoidal_trained", "sinusoidal", "rotary", "alibi")


def get_config() -> ConfigDict:
    config = default_config(task="language_model")
    config.data.validation, config.data.test = 0.02, 0.03
    config.task.length = config.model.max_len = 64
    config.model.n_layers, config.model.d_model, config.model.d_ff, config.model.n_heads = 2, 64, 128, 4
    config.model.norm_epsilon_in = "variance"
    config.optimizer.learning_rate, config.optimizer.schedule, config.optimizer.warmup_steps = 8e-3, "cosine", 20
    config.optimizer.b2, config.optimizer.clip_norm = 0.95, 1.0
    config.train.steps, config.train.batch_size = 400, 16
    config.log.tensorboard = config.log.report = False
    return config


def sweep(add: Callable[..., None]) -> None:
    for point in grid(
        {"model.positions": KINDS, "optimizer.learning_rate": [4e-3, 8e-3, 1.6e-2, 3.2e-2], "seed": range(3)}
    ):
        add(**point)
