"""Study: on reversal, do deep post-norm blocks need a warm-up, unlike pre-norm blocks and the idea of seed 004?

fxf sweep --config=studies/blocks --workdir=runs/studies/blocks --workers=1
"""

from collections.abc import Callable

from ml_collections import ConfigDict

from fxf.runs.experiment import default_config
from fxf.sweeps.points import grid


def get_config() -> ConfigDict:
    config = default_config(task="reversal")
    config.task.n_tokens, config.task.max_length, config.task.examples = 20, 6, 500
    config.model.n_layers, config.model.d_model, config.model.d_ff, config.model.n_heads = 2, 32, 64, 4
    config.model.max_len, config.model.scan_blocks = 14, True
    config.optimizer.schedule, config.optimizer.warmup_steps = "cosine", 0
    config.optimizer.b2, config.optimizer.clip_norm = 0.98, 1.0
    config.train.steps, config.train.batch_size, config.train.evaluate_every = 400, 32, 50
    config.log.tensorboard = config.log.report = False
    return config


def sweep(add: Callable[..., None]) -> None:
    for point in grid(
        {
            "model.block": ["pre_norm", "post_norm", "idea"],
            "model.n_layers": [2, 12],
            "optimizer.warmup_steps": [0, 100],
            "optimizer.learning_rate": [1e-3, 3e-3, 1e-2],
            "seed": range(2),
        }
    ):
        add(**point)
