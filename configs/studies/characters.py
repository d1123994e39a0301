"""Study: character models of the phrase book, by kind of position.

fxf sweep --config=studies/characters --workdir=runs/studies/characters --workers=2
"""

from collections.abc import Callable

from ml_collections import ConfigDict

from fxf.runs.experiment import default_config
from fxf.sweeps.points import grid

KINDS = ("none", "learned", "sinusoidal_trained", "sinusoidal", "rotary", "alibi")


def get_config() -> ConfigDict:
    config = default_config(task="language_model")
    config.data.test = 0.05
    config.task.length = config.model.max_len = 64
    config.model.n_layers, config.model.d_model, config.model.d_ff, config.model.n_heads = 2, 128, 256, 4
    config.model.norm_epsilon_in = "variance"
    config.optimizer.learning_rate, config.optimizer.schedule, config.optimizer.warmup_steps = 4e-3, "cosine", 50
    config.optimizer.b2, config.optimizer.clip_norm = 0.95, 1.0
    config.train.steps, config.train.batch_size = 500, 24
    config.log.tensorboard = False
    return config


def sweep(add: Callable[..., None]) -> None:
    for point in grid({"model.positions": KINDS, "seed": range(2)}):
        add(**point)
