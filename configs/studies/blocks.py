"""Study: pre-norm blocks (the definition's), post-norm blocks, and the idea of seed 004, on reversal.

fxf sweep --config=studies/blocks --workdir=runs/studies/blocks --workers=2
"""

from collections.abc import Callable

from ml_collections import ConfigDict

from fxf.runs.experiment import default_config
from fxf.sweeps.points import grid


def get_config() -> ConfigDict:
    config = default_config(task="reversal")
    config.task.max_length, config.task.examples = 12, 2000
    config.model.n_layers, config.model.d_model, config.model.d_ff, config.model.n_heads = 3, 64, 128, 4
    config.model.max_len = 26
    config.optimizer.schedule, config.optimizer.warmup_steps = "cosine", 50
    config.optimizer.b2, config.optimizer.clip_norm = 0.98, 1.0
    config.train.steps, config.train.batch_size = 800, 64
    config.log.tensorboard = False
    return config


def sweep(add: Callable[..., None]) -> None:
    for point in grid(
        {
            "model.block": ["pre_norm", "post_norm", "idea"],
            "optimizer.learning_rate": [1e-3, 3e-3, 1e-2],
            "seed": range(3),
        }
    ):
        add(**point)
