"""Study: does expressive attention (Gros 2024) learn delayed-sum series that softmax attention does not, at one size?

fxf sweep --config=studies/expressive --workdir=runs/studies/expressive --workers=1
"""

from collections.abc import Callable

from ml_collections import ConfigDict

from fxf.runs.configs import read_config
from fxf.runs.experiment import default_config
from fxf.sweeps.points import grid

STEPS = {5: 500, 10: 2000, 16: 2000}  # by base


def get_config() -> ConfigDict:
    read_config("time_series")  # makes the task beside its file importable
    config = default_config(task="primer.time_series:TIME_SERIES")
    config.task.length, config.task.examples = 16, 500
    config.model.n_layers, config.model.d_model, config.model.d_ff, config.model.n_heads = 1, 32, 128, 4
    config.model.max_len = config.task.length
    config.optimizer.learning_rate, config.optimizer.schedule, config.optimizer.warmup_steps = 6e-3, "cosine", 20
    config.optimizer.b2, config.optimizer.clip_norm = 0.98, 1.0
    config.train.steps, config.train.batch_size, config.train.evaluate_every = 1500, 64, 100
    config.log.tensorboard = config.log.report = False
    return config


def sweep(add: Callable[..., None]) -> None:
    for base, steps in STEPS.items():
        for point in grid(
            {
                "model.attention": ["softmax", "expressive"],
                "model.positions": ["learned", "sinusoidal_trained", "rotary"],
                "optimizer.learning_rate": [3e-3, 1e-2, 3e-2],
                "seed": range(2),
            }
        ):
            add(**{"task.base": base, "task.delay": 3, "train.steps": steps}, **point)
