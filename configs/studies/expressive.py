"""Study: does expressive attention (Gros 2024) learn delayed-sum series that softmax attention does not, at one size?

fxf sweep --config=studies/expressive --workdir=runs/studies/expressive --workers=2
"""

from collections.abc import Callable

from ml_collections import ConfigDict

from fxf.runs.experiment import default_config
from fxf.sweeps.points import grid


def get_config() -> ConfigDict:
    config = default_config(task="time_series")
    config.task.length, config.task.examples = 16, 500
    config.model.n_layers, config.model.d_model, config.model.d_ff, config.model.n_heads = 1, 32, 128, 4
    config.model.max_len = config.task.length
    config.optimizer.learning_rate, config.optimizer.schedule, config.optimizer.warmup_steps = 6e-3, "cosine", 20
    config.optimizer.b2, config.optimizer.clip_norm = 0.98, 1.0
    config.train.steps, config.train.batch_size = 1500, 64
    config.log.tensorboard = False
    return config


def sweep(add: Callable[..., None]) -> None:
    for point in grid(
        {
            "task.base": [2, 5, 10, 16],
            "task.delay": [1, 3, 5, 8],
            "model.attention": ["softmax", "expressive"],
            "seed": range(3),
        }
    ):
        add(**point)
